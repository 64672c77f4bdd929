# %% [case]
# id: running-loss-in-dict
# source: a textbook mistake in other words
# family: second_backward
# fails: 2
# culprit: -
# saved: -
# needed: 2:6
# effect: other
# observe: ([p.detach().clone() for p in lin.parameters()], float(stats["loss"]))
# note: the same sum, in a dict of statistics
# %%
import torch
from torch import nn
torch.manual_seed(0)
lin = nn.Linear(3, 1); opt = torch.optim.Adam(lin.parameters(), lr=0.1)
stats = {"loss": 0., "n": 0}
# %%
for step in range(3):
    l = lin(torch.randn(5, 3)).pow(2).mean()
    stats["loss"] += l
    stats["n"] += 1
    opt.zero_grad()
    stats["loss"].backward()
    opt.step()
# %% [fixed 2]
for step in range(3):
    l = lin(torch.randn(5, 3)).pow(2).mean()
    stats["loss"] += l.detach()
    stats["n"] += 1
    opt.zero_grad()
    l.backward()
    opt.step()
