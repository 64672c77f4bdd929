# %% [case]
# id: realnvp-tanh-scale-in-place
# source: RealNVP coupling layers with a learned scale factor
# family: modified
# fails: 3
# culprit: 1:15
# saved: 1:14
# needed: 3:6
# effect: same
# observe: [p.grad.clone() for p in flow.parameters()]
# note: tanh keeps its result s, which is multiplied in place by scale and mask. Fix: s = s * self.scale * (1 - mask).
# %%
import torch
from torch import nn

class Coupling(nn.Module):
    """affine coupling, checkerboard mask"""
    def __init__(self, d, mask, h=12):
        super().__init__()
        self.register_buffer('mask', mask)
        self.s = nn.Sequential(nn.Linear(d, h), nn.ReLU(inplace=True), nn.Linear(h, d))
        self.t = nn.Sequential(nn.Linear(d, h), nn.ReLU(inplace=True), nn.Linear(h, d))
        self.scale = nn.Parameter(torch.full((d,), 0.8))
    def forward(self, x):
        xm = x * self.mask
        s, t = torch.tanh(self.s(xm)), self.t(xm)
        s *= self.scale
        s *= 1 - self.mask
        t *= 1 - self.mask
        return xm + (1 - self.mask) * (x * s.exp() + t), s.sum(-1)
# %%
torch.manual_seed(0)
m = torch.tensor([1., 0., 1., 0.])
flow = nn.ModuleList([Coupling(4, m), Coupling(4, 1 - m)])
base = torch.distributions.Normal(0., 1.)
# %%
z, logdet = torch.randn(16, 4), 0
for layer in flow:
    z, ld = layer(z)
    logdet = logdet + ld
nll = -(base.log_prob(z).sum(-1) + logdet).mean()
nll.backward()
# %% [fixed 1]
import torch
from torch import nn

class Coupling(nn.Module):
    """affine coupling, checkerboard mask"""
    def __init__(self, d, mask, h=12):
        super().__init__()
        self.register_buffer('mask', mask)
        self.s = nn.Sequential(nn.Linear(d, h), nn.ReLU(inplace=True), nn.Linear(h, d))
        self.t = nn.Sequential(nn.Linear(d, h), nn.ReLU(inplace=True), nn.Linear(h, d))
        self.scale = nn.Parameter(torch.full((d,), 0.8))
    def forward(self, x):
        xm = x * self.mask
        s, t = torch.tanh(self.s(xm)), self.t(xm)
        s = s * self.scale * (1 - self.mask)
        t = t * (1 - self.mask)
        return xm + (1 - self.mask) * (x * s.exp() + t), s.sum(-1)
