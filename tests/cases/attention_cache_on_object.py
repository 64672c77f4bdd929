# %% [case]
# id: attention-cache-on-object
# source: a textbook mistake in other words
# family: second_backward
# fails: 2
# culprit: -
# saved: -
# needed: 2:6
# effect: truncates
# observe: [p.detach().clone() for p in att.q.parameters()]
# note: a cache of keys grows with its graph
# %%
import torch
from torch import nn
torch.manual_seed(0)
class Att:
    def __init__(self):
        self.q = nn.Linear(3, 3); self.past = None
    def __call__(self, x):
        k = self.q(x)
        keys = k if self.past is None else torch.cat([self.past, k])
        self.past = keys
        return torch.softmax(k @ keys.T, -1) @ keys
# %%
att = Att(); opt = torch.optim.SGD(att.q.parameters(), lr=0.1)
for x in torch.randn(3, 2, 3):
    o = att(x)
    opt.zero_grad()
    # loss
    o.pow(2).mean().backward()
    opt.step()
# %% [fixed 1]
import torch
from torch import nn
torch.manual_seed(0)
class Att:
    def __init__(self):
        self.q = nn.Linear(3, 3); self.past = None
    def __call__(self, x):
        k = self.q(x)
        keys = k if self.past is None else torch.cat([self.past, k])
        self.past = keys.detach()
        return torch.softmax(k @ keys.T, -1) @ keys
