# %% [case]
# id: teacher-features-cached-in-dict
# source: a textbook mistake in other words
# family: second_backward
# fails: 2
# culprit: -
# saved: -
# needed: 2:7
# effect: other
# observe: [p.detach().clone() for p in student.parameters()]
# note: a teacher's features are cached with their graph
# %%
import torch
from torch import nn
torch.manual_seed(0)
teacher, student = nn.Linear(3, 4), nn.Linear(3, 4)
opt = torch.optim.SGD(student.parameters(), lr=0.1); X = torch.randn(4, 3); cache = {}
# %%
def features(name):
    if name not in cache: cache[name] = torch.tanh(teacher(X))
    return cache[name]
for ep in range(3):
    kd = (student(X) - features("train")).pow(2).mean()
    opt.zero_grad()
    kd.backward()
    opt.step()
# %% [fixed 2]
def features(name):
    if name not in cache: cache[name] = torch.tanh(teacher(X)).detach()
    return cache[name]
for ep in range(3):
    kd = (student(X) - features("train")).pow(2).mean()
    opt.zero_grad()
    kd.backward()
    opt.step()
