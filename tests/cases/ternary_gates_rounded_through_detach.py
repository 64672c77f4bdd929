# %% [case]
# id: ternary-gates-rounded-through-detach
# source: quantised network with ternary gates, rounded in place through a detached alias
# family: modified
# fails: 3
# culprit: 2:3
# saved: 3:1
# needed: 3:4
# effect: same
# observe: [p.grad.clone() for p in gate.parameters()]
# note: tanh keeps g, g.round_() overwrites it. Fix: straight-through, out of place.
# %%
import torch
from torch import nn
torch.manual_seed(0)
gate, lin = nn.Linear(4, 4), nn.Linear(4, 2)
x = torch.randn(6, 4)
# %%
def ternary(g):
    hard = g.detach()
    hard.round_()
    return g + (hard - g).detach()
# %%
g = torch.tanh(gate(x) * 2)
y = lin(ternary(g) * x)
loss = y.pow(2).mean()
loss.backward()
print(loss.item())
# %% [fixed 2]
def ternary(g):
    hard = g.detach().round()
    return g + (hard - g).detach()
