# %% [case]
# id: running-total-on-self
# source: a textbook mistake in other words
# family: second_backward
# fails: 2
# culprit: -
# saved: -
# needed: 1:15
# effect: other
# observe: ([p.detach().clone() for p in t.net.parameters()], float(t.summe))
# note: the same sum, on a trainer
# %%
import torch
from torch import nn
torch.manual_seed(0)
class Trainer:
    def __init__(self):
        self.net = nn.Linear(3, 1)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.summe = 0.0
    def step(self, x, y):
        verlust = (self.net(x) - y).abs().mean()
        self.summe = self.summe + verlust
        self.opt.zero_grad()


        self.summe.backward()
        self.opt.step()
# %%
t = Trainer()
for k in range(3):
    t.step(torch.randn(4, 3), torch.randn(4, 1))
print(f"mean {t.summe / 3:.3f}")
# %% [fixed 1]
import torch
from torch import nn
torch.manual_seed(0)
class Trainer:
    def __init__(self):
        self.net = nn.Linear(3, 1)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.summe = 0.0
    def step(self, x, y):
        verlust = (self.net(x) - y).abs().mean()
        self.summe = self.summe + verlust.detach()
        self.opt.zero_grad()


        verlust.backward()
        self.opt.step()
