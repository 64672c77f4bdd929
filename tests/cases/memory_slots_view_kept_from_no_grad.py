# %% [case]
# id: memory-slots-view-kept-from-no-grad
# source: memory-augmented network whose write head was made under no_grad
# family: no_grad_view
# fails: 3
# culprit: 2:14
# saved: -
# needed: 2:14
# effect: same
# observe: [writer.weight.grad.clone()]
# note: slot is a view of memory made under no_grad, writing a result with gradient into it is refused. Fix: take the view in grad mode.
# %%
import torch
from torch import nn
torch.manual_seed(0)
writer, reader = nn.Linear(3, 4), nn.Linear(4, 1)
# %%
class Memory:
    def __init__(self, n=5, d=4):
        self.m = torch.zeros(n, d)
        self.usage = torch.zeros(n)

    @torch.no_grad()
    def least_used(self):
        i = int(self.usage.argmin())
        self.usage[i] += 1
        return self.m[i]

    def write(self, v):
        slot = self.least_used()
        slot.copy_(v)

    def read(self, q):
        return torch.softmax(self.m @ q, 0) @ self.m
# %%
mem = Memory()
for item in torch.randn(3, 3):
    mem.write(writer(item))
out = reader(mem.read(torch.ones(4)))
out.backward()
# %% [fixed 2]
class Memory:
    def __init__(self, n=5, d=4):
        self.m = torch.zeros(n, d)
        self.usage = torch.zeros(n)

    def least_used(self):
        i = int(self.usage.argmin())
        self.usage[i] += 1
        return i

    def write(self, v):
        self.m[self.least_used()] = v

    def read(self, q):
        return torch.softmax(self.m @ q, 0) @ self.m
