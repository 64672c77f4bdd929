# %% [case]
# id: silent-target-network-data-copy
# source: actor-critic with a differentiable target branch synchronised through .data
# family: silent
# fails: -
# culprit: 1:13
# saved: 3:1
# needed: 3:5
# effect: same
# observe: [p.grad.clone() for p in actor.parameters()]
# note: soft_update writes the target critic through .data after it scored the actor's action, before the actor's backward. Fix: update after the backward.
# %%
import copy
import torch
from torch import nn
torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
critic = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
target = copy.deepcopy(critic)
for p in critic.parameters():
    nn.init.normal_(p, std=0.5)

def soft_update(target, source, tau=0.5):
    for t, s in zip(target.parameters(), source.parameters()):
        t.data.copy_(t.data * (1 - tau) + s.data * tau)
# %%
s = torch.randn(6, 3)
opt = torch.optim.Adam(actor.parameters(), 1e-3)
# %%
q = target(torch.cat([s, actor(s)], 1))
actor_loss = -q.mean()
soft_update(target, critic)
opt.zero_grad()
actor_loss.backward()
opt.step()
# %% [fixed 3]
q = target(torch.cat([s, actor(s)], 1))
actor_loss = -q.mean()
opt.zero_grad()
actor_loss.backward()
opt.step()
soft_update(target, critic)
