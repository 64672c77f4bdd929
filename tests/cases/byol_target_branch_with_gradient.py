# %% [case]
# id: byol-target-branch-with-gradient
# source: BYOL notebook, target network updated by EMA before the backward
# family: modified
# fails: 3
# culprit: 1:12
# saved: 3:3
# needed: 3:7
# effect: truncates
# observe: [p.grad.clone() for p in online.parameters()]
# note: the target's projection was made with gradient and its weights are then updated in place. Fix: compute it under no_grad.
# %%
import copy
import torch
from torch import nn
import torch.nn.functional as F

def MLP(d, h, o):
    return nn.Sequential(nn.Linear(d, h), nn.ReLU(True), nn.Linear(h, o))

@torch.no_grad()
def ema_update(target, online, tau=0.99):
    for t, o in zip(target.parameters(), online.parameters()):
        t.mul_(tau).add_(o, alpha=1 - tau)

def regression_loss(p, z):
    return 2 - 2 * F.cosine_similarity(p, z, dim=-1).mean()
# %%
torch.manual_seed(0)
online, predictor = MLP(6, 8, 4), MLP(4, 8, 4)
target = copy.deepcopy(online)
opt = torch.optim.Adam([*online.parameters(), *predictor.parameters()], 3e-4)
# %%
for v1, v2 in torch.randn(2, 2, 5, 6):
    p1, p2 = predictor(online(v1)), predictor(online(v2))
    t1, t2 = target(v1), target(v2)
    loss = regression_loss(p1, t2) + regression_loss(p2, t1)
    ema_update(target, online)
    opt.zero_grad()
    loss.backward()
    opt.step()
# %% [fixed 3]
for v1, v2 in torch.randn(2, 2, 5, 6):
    p1, p2 = predictor(online(v1)), predictor(online(v2))
    with torch.no_grad():
        t1, t2 = target(v1), target(v2)
    loss = regression_loss(p1, t2) + regression_loss(p2, t1)
    ema_update(target, online)
    opt.zero_grad()
    loss.backward()
    opt.step()
