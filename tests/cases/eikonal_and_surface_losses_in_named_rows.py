# %% [case]
# id: eikonal-and-surface-losses-in-named-rows
# source: signed distance network, surface loss and eikonal loss in a loop over named losses
# family: modified
# fails: 4
# culprit: 3:7
# saved: 2:4|3:3
# needed: 3:6
# effect: other
# observe: [curve] + [p.detach().clone() for _, p in sdf.named_parameters()]
# note: both losses are made from one evaluation, yet the loop steps after each of them; the eikonal graph then holds old weights. Fix: the loop calls a function which evaluates each loss with the present weights.
# %%
import torch
from torch import nn
from functools import partial

class Sine(nn.Module):
    def forward(self, x): return torch.sin(3 * x)

torch.manual_seed(52)
sdf = nn.Sequential(nn.Linear(2, 20), Sine(), nn.Linear(20, 20), Sine(), nn.Linear(20, 1))
adam = torch.optim.Adam(sdf.parameters(), lr=1e-3)
gradient = partial(torch.autograd.grad, create_graph=True)
curve = {'surface': [], 'eikonal': []}
# %%
def surface_loss(d): return d.abs().mean()

def eikonal_loss(d, pts):
    n, = gradient(d.sum(), pts)
    return 0.1 * (n.norm(dim=-1) - 1).square().mean()
# %%
def optimise(pts):
    pts = pts.clone().requires_grad_()
    d = sdf(pts)
    losses = [('surface', surface_loss(d)), ('eikonal', eikonal_loss(d, pts))]
    for name, loss in losses:
        adam.zero_grad(); loss.backward(retain_graph=True)
        adam.step()
        curve[name].append(loss.item())
# %%
angle = torch.linspace(0, 6.28, 16)
circle = torch.stack([angle.cos(), angle.sin()], 1)
for _ in range(3): optimise(circle)
print(curve)
# %% [fixed 3]
def optimise(pts):
    pts = pts.clone().requires_grad_()
    losses = [('surface', lambda: surface_loss(sdf(pts))), ('eikonal', lambda: eikonal_loss(sdf(pts), pts))]
    for name, evaluate in losses:
        loss = evaluate()
        adam.zero_grad(); loss.backward(retain_graph=True)
        adam.step()
        curve[name].append(loss.item())
