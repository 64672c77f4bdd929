# %% [case]
# id: learned-simulator-carries-state
# source: model-predictive control with a learned simulator, state kept between optimisation steps
# family: second_backward
# fails: 4
# culprit: 1:11
# saved: 1:11
# needed: 4:5
# effect: truncates
# observe: [actions.detach().clone()]
# note: sim.state keeps the graph of the last planning round. Fix: start each round from state.detach().
# %%
import torch
from torch import nn

class Simulator(nn.Module):
    def __init__(self, ns=3, na=2):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(ns + na, 12), nn.Tanh(), nn.Linear(12, ns))
        self.state = torch.zeros(1, ns)

    def step(self, a):
        self.state = self.state + 0.1 * self.f(torch.cat([self.state, a[None]], -1))
        return self.state
# %%
torch.manual_seed(0)
sim = Simulator()
for p in sim.parameters():
    p.requires_grad_(False)
actions = torch.zeros(4, 2, requires_grad=True)
goal = torch.ones(1, 3)
# %%
def plan_cost(sim, actions):
    cost = 0.
    for a in actions:
        s = sim.step(a)
        cost = cost + (s - goal).pow(2).sum() + 0.01 * a.pow(2).sum()
    return cost
# %%
opt = torch.optim.Adam([actions], lr=0.1)
for it in range(3):
    opt.zero_grad()
    J = plan_cost(sim, actions)
    J.backward()
    opt.step()
# %% [fixed 3]
def plan_cost(sim, actions):
    cost = 0.
    sim.state = sim.state.detach()
    for a in actions:
        s = sim.step(a)
        cost = cost + (s - goal).pow(2).sum() + 0.01 * a.pow(2).sum()
    return cost
