# %% [case]
# id: returns-table-with-learned-discount
# source: meta-gradient reinforcement learning, the discount is a parameter
# family: modified
# fails: 3
# culprit: 1:16
# saved: 1:16
# needed: 3:2
# effect: same
# observe: [meta.logit.grad.clone()]
# note: gamma is trained, so gamma * G[t + 1] saves G[t + 1], a view of the table that the assignment writes. Fix: list and stack.
# %%
import torch
from torch import nn

class Discount(nn.Module):
    def __init__(self):
        super().__init__()
        self.logit = nn.Parameter(torch.tensor(2.))
    @property
    def gamma(self):
        return torch.sigmoid(self.logit)

def returns(rewards, gamma):
    T = len(rewards)
    G = torch.zeros(T + 1)
    for t in reversed(range(T)):
        G[t] = rewards[t] + gamma * G[t + 1]
    return G[:T]
# %%
torch.manual_seed(0)
meta = Discount()
rewards = torch.rand(5)
baseline = torch.full((5,), 1.5)
# %%
outer = (returns(rewards, meta.gamma) - baseline).pow(2).mean()
outer.backward()
print('d gamma', meta.logit.grad.item())
# %% [fixed 1]
import torch
from torch import nn

class Discount(nn.Module):
    def __init__(self):
        super().__init__()
        self.logit = nn.Parameter(torch.tensor(2.))
    @property
    def gamma(self):
        return torch.sigmoid(self.logit)

def returns(rewards, gamma):
    T = len(rewards)
    G, g = [], torch.zeros(())
    for t in reversed(range(T)):
        g = rewards[t] + gamma * g
        G.insert(0, g)
    return torch.stack(G)
