# %% [case]
# id: gan-jobs-bound-by-partial
# source: a textbook mistake in other words
# family: second_backward
# fails: 3
# culprit: -
# saved: -
# needed: 3:5
# effect: same
# observe: [p.detach().clone() for p in [*mover.parameters(), *referee.parameters()]]
# note: two updates driven by a list of (optimizer, loss) pairs, the referee's loss holds on to the graph of the mover. Fix: detach in the referee's entry.
# %%
import torch
import torch.nn as nn
from functools import partial
torch.manual_seed(27)

mover, referee = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3)), nn.Sequential(nn.Linear(3, 4), nn.ELU(), nn.Linear(4, 1))
mover_opt, referee_opt = (torch.optim.RMSprop(m.parameters(), lr=0.01) for m in (mover, referee))
# %%
def hinge(paths, sign):
    return torch.relu(1 - sign * referee(paths)).mean()

def judge_paths(recorded, moved):
    return hinge(recorded, +1) + hinge(moved, -1)

def please_referee(moved):
    return -referee(moved).mean()

def schedule(recorded):
    moved = mover(torch.rand(len(recorded), 2))
    return [
        (referee_opt, partial(judge_paths, recorded, moved)),
        (mover_opt, partial(please_referee, moved)),
    ]
# %%
for i in range(3):
    values = []
    for opt, compute in schedule(torch.randn(6, 3)):
        opt.zero_grad(); loss = compute()
        loss.backward()
        opt.step()
        values.append(loss.item())
    print(i, *values)
# %% [fixed 2]
def hinge(paths, sign):
    return torch.relu(1 - sign * referee(paths)).mean()

def judge_paths(recorded, moved):
    return hinge(recorded, +1) + hinge(moved, -1)

def please_referee(moved):
    return -referee(moved).mean()

def schedule(recorded):
    moved = mover(torch.rand(len(recorded), 2))
    return [
        (referee_opt, partial(judge_paths, recorded, moved.detach())),
        (mover_opt, partial(please_referee, moved)),
    ]
