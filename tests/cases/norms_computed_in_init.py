# %% [case]
# id: norms-computed-in-init
# source: a textbook mistake in other words
# family: second_backward
# fails: 2
# culprit: -
# saved: -
# needed: 2:4
# effect: other
# observe: [p.detach().clone() for p in m.parameters()]
# note: a norm is computed in the constructor and kept
# %%
import torch
from torch import nn
torch.manual_seed(0)
class WN(nn.Module):
    def __init__(self):
        super().__init__()
        self.v = nn.Parameter(torch.randn(3, 3)); self.g = nn.Parameter(torch.ones(3, 1))
        self.norm = self.v.norm(dim=1, keepdim=True)
    def forward(self, x):
        return x @ (self.g * self.v / self.norm).T
# %%
m = WN(); opt = torch.optim.SGD(m.parameters(), lr=0.1)
for x in torch.randn(3, 5, 3):
    opt.zero_grad()
    m(x).pow(2).mean().backward()
    opt.step()
# %% [fixed 1]
import torch
from torch import nn
torch.manual_seed(0)
class WN(nn.Module):
    def __init__(self):
        super().__init__()
        self.v = nn.Parameter(torch.randn(3, 3)); self.g = nn.Parameter(torch.ones(3, 1))
    def forward(self, x):
        norm = self.v.norm(dim=1, keepdim=True)
        return x @ (self.g * self.v / norm).T
