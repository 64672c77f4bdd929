# %% [case]
# id: losses-by-task-mean-from-a-callback
# source: a textbook mistake in other words, in other words
# family: second_backward
# fails: 3
# culprit: -
# saved: -
# needed: 3:5
# effect: other
# observe: [w.detach().clone() for w in tagger.state_dict().values()]
# note: a callback files the losses of each task in a dict and returns the mean of the last three, which the step function sends back. Human fix: the dict stores loss.detach(), the step sends back the loss itself.
# %%
from collections import defaultdict
import torch
import torch.nn.functional as F

torch.manual_seed(35)
tagger = torch.nn.Linear(7, 4)
opt = torch.optim.RMSprop(tagger.parameters(), lr=1e-2)
jobs = [("news", torch.randn(6, 7), torch.randint(4, (6,))), ("mail", torch.randn(6, 7), torch.randint(4, (6,)))] * 3
# %%
logbook = defaultdict(list)

def remember(task, loss):
    logbook[task].append(loss)
    last = logbook[task][-3:]
    return torch.stack(last).mean()
# %%
def step(task, x, tags, on_loss):
    opt.zero_grad()
    loss = F.cross_entropy(tagger(x), tags)
    recent = on_loss(task, loss)
    recent.backward()
    opt.step()
    return task, round(recent.item(), 4)

report = [step(*job, on_loss=remember) for job in jobs]
print(report)
# %% [fixed 2]
logbook = defaultdict(list)

def remember(task, loss):
    logbook[task].append(loss.detach())
    last = logbook[task][-3:]
    return torch.stack(last).mean()
# %% [fixed 3]
def step(task, x, tags, on_loss):
    opt.zero_grad()
    loss = F.cross_entropy(tagger(x), tags)
    recent = on_loss(task, loss)
    loss.backward()
    opt.step()
    return task, round(recent.item(), 4)

report = [step(*job, on_loss=remember) for job in jobs]
print(report)
