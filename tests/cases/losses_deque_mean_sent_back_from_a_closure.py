# %% [case]
# id: losses-deque-mean-sent-back-from-a-closure
# source: a textbook mistake in other words
# family: second_backward
# fails: 3
# culprit: -
# saved: -
# needed: 3:6
# effect: other
# observe: [v.detach().clone() for v in policy.state_dict().values()]
# note: a closure with a deque of the last losses returns the smoothed loss, which the loop sends back. Human fix: the deque stores loss.detach(), loss.backward().
# %%
from collections import deque
import torch
from torch import nn
torch.manual_seed(122)
boards = torch.randn(4, 2, 6)
moves = torch.randint(0, 3, (4, 2))
policy = nn.Linear(6, 3)
sgd = torch.optim.SGD(policy.parameters(), lr=0.1, momentum=0.5)
# %%
def smoother(size):
    recent = deque(maxlen=size)
    def smooth(loss):
        recent.append(loss)
        return torch.stack(list(recent)).mean()
    return smooth
# %%
smooth = smoother(5); shown = []
for k in range(len(boards)):
    loss = nn.functional.cross_entropy(policy(boards[k]), moves[k])
    level = smooth(loss)
    sgd.zero_grad()
    level.backward()
    sgd.step()
    shown += [level.item()]
# %% [fixed 2]
def smoother(size):
    recent = deque(maxlen=size)
    def smooth(loss):
        recent.append(loss.detach())
        return torch.stack(list(recent)).mean()
    return smooth
# %% [fixed 3]
smooth = smoother(5); shown = []
for k in range(len(boards)):
    loss = nn.functional.cross_entropy(policy(boards[k]), moves[k])
    level = smooth(loss)
    sgd.zero_grad()
    loss.backward()
    sgd.step()
    shown += [level.item()]
