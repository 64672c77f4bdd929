# %% [case]
# id: residual-added-onto-checkpoint-input
# source: memory-saving residual block, gradient checkpointing with an in-place residual
# family: modified
# fails: 3
# culprit: 1:13
# saved: 1:12
# needed: 3:2
# effect: same
# observe: [p.grad.clone() for p in block.parameters()] + [emb.grad.clone()]
# note: checkpoint recomputes f(x) in the backward from x, which x += out has changed meanwhile; torch notices. Fix: x = x + out.
# %%
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.norm, self.ff = nn.LayerNorm(d), nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
    def f(self, x):
        return self.ff(self.norm(x))
    def forward(self, x):
        out = checkpoint(self.f, x, use_reentrant=False)
        x += out
        return x
# %%
torch.manual_seed(0)
block = Block()
emb = torch.randn(3, 6, requires_grad=True)
# %%
h = block(emb * 1.)
h.pow(2).mean().backward()
emb.grad.norm()
# %% [fixed 1]
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.norm, self.ff = nn.LayerNorm(d), nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
    def f(self, x):
        return self.ff(self.norm(x))
    def forward(self, x):
        out = checkpoint(self.f, x, use_reentrant=False)
        x = x + out
        return x
