# %% [case]
# id: ema-of-rewards-on-self
# source: a textbook mistake in other words
# family: second_backward
# fails: 2
# culprit: -
# saved: -
# needed: 2:6
# effect: other
# observe: [p.detach().clone() for p in pol.net.parameters()]
# note: a running average on an object keeps all graphs
# %%
import torch
from torch import nn
torch.manual_seed(0)
class Policy:
    def __init__(self):
        self.net = nn.Linear(2, 1); self.avg = 0.0
    def score(self, x):
        r = self.net(x).mean()
        self.avg = 0.9 * self.avg + 0.1 * r
        return r - self.avg
# %%
pol = Policy()
opt = torch.optim.SGD(pol.net.parameters(), lr=0.1)
for i in range(3):
    loss = -pol.score(torch.ones(3, 2) * i)
    opt.zero_grad()
    loss.backward()
    opt.step()
# %% [fixed 1]
import torch
from torch import nn
torch.manual_seed(0)
class Policy:
    def __init__(self):
        self.net = nn.Linear(2, 1); self.avg = 0.0
    def score(self, x):
        r = self.net(x).mean()
        self.avg = 0.9 * self.avg + 0.1 * r.detach()
        return r - self.avg
