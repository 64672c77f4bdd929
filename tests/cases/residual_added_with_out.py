# %% [case]
# id: residual-added-with-out
# source: inference kernel copied into a training notebook, residual added with out=
# family: out_grad
# fails: 2
# culprit: 1:11
# saved: -
# needed: 1:11
# effect: same
# observe: [p.grad.clone() for p in blk.parameters()]
# note: torch.add(..., out=h) is refused for tensors in a graph. Fix: h = torch.add(h, r).
# %%
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, d=4):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(d, d), nn.Linear(d, d)
    def forward(self, x):
        h = self.fc1(x)
        r = torch.relu(self.fc2(h))
        torch.add(h, r, alpha=0.5, out=h)
        return h
# %%
torch.manual_seed(0)
blk = Block()
blk(torch.randn(3, 4)).sum().backward()
# %% [fixed 1]
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, d=4):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(d, d), nn.Linear(d, d)
    def forward(self, x):
        h = self.fc1(x)
        r = torch.relu(self.fc2(h))
        h = torch.add(h, r, alpha=0.5)
        return h
