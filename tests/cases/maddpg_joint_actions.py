# %% [case]
# id: maddpg-joint-actions
# source: a textbook mistake in other words
# family: modified
# fails: 2
# culprit: 2:11
# saved: 2:1
# needed: 2:10
# effect: other
# observe: [p.detach().clone() for a in actors for p in a.parameters()]
# note: joint actions are made once, before the loop over the agents
# %%
import torch
from torch import nn
torch.manual_seed(0)
n, obs = 2, torch.randn(2, 6, 3)
actors = [nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)) for _ in range(n)]
critics = [nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)) for _ in range(n)]
opts = [torch.optim.SGD(a.parameters(), lr=0.1) for a in actors]
# %%
acts = [actors[i](obs[i]) for i in range(n)]
joint = torch.cat(acts, dim=1)




for i in range(n):
    policy_loss = -critics[i](joint).mean()
    opts[i].zero_grad()
    policy_loss.backward(retain_graph=True)
    opts[i].step()
# %% [fixed 2]
for i in range(n):
    acts = [actors[k](obs[k]) for k in range(n)]
    joint = torch.cat(acts, dim=1)
    policy_loss = -critics[i](joint).mean()
    opts[i].zero_grad()
    policy_loss.backward()
    opts[i].step()
