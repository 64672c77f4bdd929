# %% [case]
# id: sarsa-draws-the-action-beside-its-value
# source: https://github.com/rentruewang/brief/issues/1 (temporal-difference loop that needs the graph of the step before), condensed as on-policy SARSA
# family: modified
# fails: 4
# culprit: 3:14
# saved: 3:6
# needed: 3:13
# effect: other
# observe: [qnet[2].weight.detach().clone()]
# note: the value of the next pair is computed before update() and carried into the next turn as its prediction. Fix: evaluate the pair again after the update; the number changes, since the weights did.
# %%
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

rng = np.random.default_rng(0)
torch.manual_seed(0)
SIZE, GOAL = 4, (3, 3)
MOVES = [(0, 1), (1, 0), (0, -1), (-1, 0)]
# %%
def encode(pos):
    return torch.tensor(pos, dtype=torch.float32) / (SIZE - 1)

def move(pos, a):
    new = tuple(int(np.clip(p + d, 0, SIZE - 1)) for p, d in zip(pos, MOVES[a]))
    return new, (10.0 if new == GOAL else -1.0), new == GOAL
# %%
qnet = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, len(MOVES)))
optimizer = torch.optim.SGD(qnet.parameters(), lr=1e-2)

def choose(pos, eps=0.3):
    """epsilon-greedy; the action and its value"""
    qs = qnet(encode(pos))
    a = int(rng.integers(len(MOVES))) if rng.random() < eps else int(qs.argmax())
    return a, qs[a]

def update(pred, target):
    td = F.mse_loss(pred, target)
    optimizer.zero_grad()
    td.backward()
    optimizer.step()
    return td.item()
# %%
GAMMA, errors = 0.95, []
for ep in range(2):
    pos = (0, 0)
    action, q = choose(pos)
    for t in range(12):
        nxt, reward, done = move(pos, action)
        next_action, next_q = choose(nxt)
        target = torch.tensor(reward) if done else reward + GAMMA * next_q.detach()
        errors.append(update(q, target))
        pos, action, q = nxt, next_action, next_q
        if done: break
    print(ep, t, sum(errors) / len(errors))
# %% [fixed 4]
GAMMA, errors = 0.95, []
for ep in range(2):
    pos = (0, 0)
    action, q = choose(pos)
    for t in range(12):
        nxt, reward, done = move(pos, action)
        next_action, next_q = choose(nxt)
        target = torch.tensor(reward) if done else reward + GAMMA * next_q.detach()
        errors.append(update(q, target))
        pos, action, q = nxt, next_action, qnet(encode(nxt))[next_action]
        if done: break
    print(ep, t, sum(errors) / len(errors))
