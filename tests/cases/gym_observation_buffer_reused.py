# %% [case]
# id: gym-observation-buffer-reused
# source: REINFORCE on a numpy environment that returns the same array at every step
# family: silent
# fails: -
# culprit: 1:13
# saved: 3:3
# needed: 3:10
# effect: same
# observe: [p.grad.clone() for p in policy.parameters()]
# note: from_numpy shares memory with env.state, which step() advances in place, so every saved observation is the last one. Fix: copy.
# %%
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

class PointEnv:
    """1-d point mass, written for speed"""
    def reset(self):
        self.state = np.array([0.5, 0.0], dtype=np.float32)
        return self.state
    def step(self, a):
        acc = 0.3 if a == 1 else -0.3
        self.state += np.array([self.state[1], acc], dtype=np.float32)
        return self.state, -abs(float(self.state[0])), False
# %%
torch.manual_seed(0)
env = PointEnv()
policy = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
# %%
obs, logps, rewards = env.reset(), [], []
for t in range(5):
    dist = Categorical(logits=policy(torch.from_numpy(obs)))
    a = dist.sample()
    obs, r, done = env.step(a.item())
    logps.append(dist.log_prob(a)); rewards.append(r)
G = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
pg_loss = -(torch.stack(logps) * G).sum()
policy.zero_grad()
pg_loss.backward()
# %% [fixed 3]
obs, logps, rewards = env.reset(), [], []
for t in range(5):
    dist = Categorical(logits=policy(torch.from_numpy(obs.copy())))
    a = dist.sample()
    obs, r, done = env.step(a.item())
    logps.append(dist.log_prob(a)); rewards.append(r)
G = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
pg_loss = -(torch.stack(logps) * G).sum()
policy.zero_grad()
pg_loss.backward()
