# %% [case]
# id: nerf-rgb-padding
# source: small NeRF notebook, colours padded as in mip-NeRF
# family: modified
# fails: 4
# culprit: 1:21
# saved: 1:19
# needed: 4:6
# effect: same
# observe: [p.grad.clone() for p in field.parameters()]
# note: sigmoid keeps its result, `rgb *= ...` and `rgb -= ...` overwrite it. Fix: rgb = rgb * (1 + 2 * pad) - pad.
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F

def posenc(x, L=3):
    out = [x]
    for i in range(L):
        out += [torch.sin(2. ** i * x), torch.cos(2. ** i * x)]
    return torch.cat(out, -1)

class Field(nn.Module):
    def __init__(self, width=24, rgb_padding=0.001):
        super().__init__()
        self.rgb_padding = rgb_padding
        self.mlp = nn.Sequential(nn.Linear(21, width), nn.ReLU(True), nn.Linear(width, 4))
    def forward(self, pts):
        raw = self.mlp(posenc(pts))
        sigma = F.softplus(raw[..., 3] - 1.)
        rgb = torch.sigmoid(raw[..., :3])
        # avoid saturation
        rgb *= 1 + 2 * self.rgb_padding
        rgb -= self.rgb_padding
        return rgb, sigma
# %%
def render(field, o, d, near=0., far=2., n=8):
    t = torch.linspace(near, far, n)
    pts = o[:, None] + d[:, None] * t[:, None]
    rgb, sigma = field(pts)
    delta = torch.cat([t[1:] - t[:-1], torch.tensor([1e10])])
    alpha = 1 - torch.exp(-sigma * delta)
    T = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1), -1)[:, :-1]
    w = alpha * T
    return (w[..., None] * rgb).sum(1)
# %%
torch.manual_seed(0)
field = Field()
optim = torch.optim.Adam(field.parameters(), 5e-4)
o, d = torch.zeros(10, 3), F.normalize(torch.randn(10, 3), dim=-1)
target = torch.rand(10, 3)
psnrs = []
# %%
%%time
for i in range(2):
    c = render(field, o, d)
    mse = F.mse_loss(c, target)
    optim.zero_grad()
    mse.backward()
    optim.step()
    psnrs.append(-10 * torch.log10(mse.detach()))
print(psnrs[-1])
# %% [fixed 1]
import torch
import torch.nn as nn
import torch.nn.functional as F

def posenc(x, L=3):
    out = [x]
    for i in range(L):
        out += [torch.sin(2. ** i * x), torch.cos(2. ** i * x)]
    return torch.cat(out, -1)

class Field(nn.Module):
    def __init__(self, width=24, rgb_padding=0.001):
        super().__init__()
        self.rgb_padding = rgb_padding
        self.mlp = nn.Sequential(nn.Linear(21, width), nn.ReLU(True), nn.Linear(width, 4))
    def forward(self, pts):
        raw = self.mlp(posenc(pts))
        sigma = F.softplus(raw[..., 3] - 1.)
        rgb = torch.sigmoid(raw[..., :3])
        # avoid saturation
        rgb = rgb * (1 + 2 * self.rgb_padding) - self.rgb_padding
        return rgb, sigma
