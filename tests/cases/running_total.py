# %% [case]
# id: running-total
# source: a textbook mistake in other words
# family: second_backward
# fails: 2
# culprit: -
# saved: -
# needed: 2:8
# effect: other
# observe: ([p.detach().clone() for p in lin.parameters()], float(total_loss))
# note: the sum that is kept for printing is what goes back
# %%
import torch
from torch import nn
torch.manual_seed(0)
lin = nn.Linear(3, 1)
opt = torch.optim.SGD(lin.parameters(), lr=0.1)
batches = torch.randn(4, 5, 3)
# %%
total_loss = 0
for b in batches:
    out = lin(b)
    loss = out.pow(2).mean()
    total_loss += loss
    opt.zero_grad()

    total_loss.backward()
    opt.step()
print("total", total_loss / len(batches))
# %% [fixed 2]
total_loss = 0
for b in batches:
    out = lin(b)
    loss = out.pow(2).mean()
    total_loss += loss.detach()
    opt.zero_grad()

    loss.backward()
    opt.step()
print("total", total_loss / len(batches))
