# %% [case]
# id: dreamer-value-step-before-actor-backward
# source: latent imagination agent, value network updated before the actor's backward
# family: modified
# fails: 4
# culprit: 3:12
# saved: 3:3
# needed: 3:16
# effect: same
# observe: [p.grad.clone() for p in actor.parameters()]
# note: the imagined values belong to the actor's graph; value_opt.step() changes the value net before actor_loss.backward(). Fix: actor first.
# %%
import torch
from torch import nn
torch.manual_seed(4)
D, A, H = 6, 2, 4
rssm = nn.GRUCell(A, D)
reward_model = nn.Linear(D, 1)
actor = nn.Sequential(nn.Linear(D, 8), nn.ELU(), nn.Linear(8, A), nn.Tanh())
value = nn.Sequential(nn.Linear(D, 8), nn.ELU(), nn.Linear(8, 1))
actor_opt = torch.optim.Adam(actor.parameters(), 8e-3)
value_opt = torch.optim.Adam(value.parameters(), 8e-3)
# %%
def imagine(h):
    states = []
    for _ in range(H):
        h = rssm(actor(h), h)
        states.append(h)
    return torch.stack(states)

def lambda_return(r, v, gamma=0.99, lam=0.95):
    ret, out = v[-1], []
    for t in reversed(range(H - 1)):
        ret = r[t] + gamma * ((1 - lam) * v[t + 1] + lam * ret)
        out.append(ret)
    return torch.stack(out[::-1])
# %%
def train_behaviour(start):
    states = imagine(start)
    r, v = reward_model(states), value(states)
    targets = lambda_return(r, v)
    actor_loss = -targets.mean()

    # value
    value_pred = value(states[:-1].detach())
    value_loss = 0.5 * (value_pred - targets.detach()).pow(2).mean()
    value_opt.zero_grad()
    value_loss.backward()
    value_opt.step()

    # actor
    actor_opt.zero_grad()
    actor_loss.backward()
    actor_opt.step()
    return actor_loss.item(), value_loss.item()
# %%
print(train_behaviour(torch.randn(5, D)))
# %% [fixed 3]
def train_behaviour(start):
    states = imagine(start)
    r, v = reward_model(states), value(states)
    targets = lambda_return(r, v)
    actor_loss = -targets.mean()

    # actor
    actor_opt.zero_grad()
    actor_loss.backward()
    actor_opt.step()

    # value
    value_pred = value(states[:-1].detach())
    value_loss = 0.5 * (value_pred - targets.detach()).pow(2).mean()
    value_opt.zero_grad()
    value_loss.backward()
    value_opt.step()
    return actor_loss.item(), value_loss.item()
