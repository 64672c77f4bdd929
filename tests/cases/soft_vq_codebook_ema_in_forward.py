# %% [case]
# id: soft-vq-codebook-ema-in-forward
# source: soft vector quantiser with an EMA codebook updated in forward
# family: modified
# fails: 4
# culprit: 1:18
# saved: 1:11 | 1:13
# needed: 4:3
# effect: same
# observe: [p.grad.clone() for p in enc.parameters()]
# note: the distances and the read-out saved the codebook, the EMA update inside forward writes into it. Fix: make a new codebook tensor.
# %%
import torch
import torch.nn as nn

class SoftVQ(nn.Module):
    def __init__(self, n=5, d=3, decay=0.9):
        super().__init__()
        self.decay = decay
        self.register_buffer('codebook', torch.randn(n, d))

    def forward(self, z):
        dist = z.pow(2).sum(1, keepdim=True) - 2 * z @ self.codebook.t() + self.codebook.pow(2).sum(1)
        a = torch.softmax(-dist, dim=1)
        zq = a @ self.codebook
        if self.training:
            with torch.no_grad():
                n = a.sum(0).unsqueeze(1) + 1e-5
                new = a.t() @ z / n
                self.codebook.mul_(self.decay).add_(new, alpha=1 - self.decay)
        return zq, a
# %%
torch.manual_seed(0)
enc, vq, decoder = nn.Linear(6, 3), SoftVQ(), nn.Linear(3, 6)
# %%
def step(x):
    zq, a = vq(enc(x))
    rec = (decoder(zq) - x).pow(2).mean()
    ent = -(a * (a + 1e-8).log()).sum(1).mean()
    return rec + 0.1 * ent
# %%
x = torch.randn(7, 6)
loss = step(x)
loss.backward()
# %% [fixed 1]
import torch
import torch.nn as nn

class SoftVQ(nn.Module):
    def __init__(self, n=5, d=3, decay=0.9):
        super().__init__()
        self.decay = decay
        self.register_buffer('codebook', torch.randn(n, d))

    def forward(self, z):
        dist = z.pow(2).sum(1, keepdim=True) - 2 * z @ self.codebook.t() + self.codebook.pow(2).sum(1)
        a = torch.softmax(-dist, dim=1)
        zq = a @ self.codebook
        if self.training:
            with torch.no_grad():
                n = a.sum(0).unsqueeze(1) + 1e-5
                new = a.t() @ z / n
                self.codebook = self.codebook * self.decay + new * (1 - self.decay)
        return zq, a
