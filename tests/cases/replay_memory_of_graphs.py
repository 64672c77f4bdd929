# %% [case]
# id: replay-memory-of-graphs
# source: a textbook mistake in other words
# family: second_backward
# fails: 2
# culprit: -
# saved: -
# needed: 2:8
# effect: other
# observe: [p.detach().clone() for p in enc.parameters()]
# note: a memory of earlier outputs keeps their graphs
# %%
import torch
from torch import nn
from collections import deque
torch.manual_seed(0)
enc = nn.Linear(3, 4)
opt = torch.optim.SGD(enc.parameters(), lr=0.1)
bank = deque(maxlen=3)
# %%
for it in range(4):
    z = enc(torch.randn(2, 3))
    loss = z.pow(2).mean()
    for old in bank:
        loss = loss + (z @ old.T).mean()
    bank.append(z)
    opt.zero_grad()
    loss.backward()
    opt.step()
# %% [fixed 2]
for it in range(4):
    z = enc(torch.randn(2, 3))
    loss = z.pow(2).mean()
    for old in bank:
        loss = loss + (z @ old.T).mean()
    bank.append(z.detach())
    opt.zero_grad()
    loss.backward()
    opt.step()
