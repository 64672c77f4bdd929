# %% [case]
# id: silent-probe-called-by-hand
# source: a graph made once and sent back for each new value, by a method that is called by hand
# family: silent
# fails: -
# culprit: 1:12
# saved: 1:7
# needed: 1:13
# effect: other
# observe: [g.clone() for pair in probe.seen for g in pair]
# note: the product is computed once in the constructor, and new values come in through .data; every backward goes back through the first one. Fix: the product is computed again for every value.
# %%
import torch
torch.manual_seed(0)
w = torch.tensor([1., 2., 3.], requires_grad=True)
x = torch.tensor([2., 1., .5], requires_grad=True)
class Probe:
    def __init__(self):
        self.out, self.seen = (w * x).pow(2).sum(), []

    def at(self, value):
        w.grad = None
        x.grad = None
        w.data.fill_(value)
        self.out.backward(retain_graph=True)
        self.seen.append((w.grad.clone(), x.grad.clone()))
probe = Probe()
# %%
probe.at(1.)
probe.at(2.)
probe.at(3.)
# %% [fixed 1]
import torch
torch.manual_seed(0)
w = torch.tensor([1., 2., 3.], requires_grad=True)
x = torch.tensor([2., 1., .5], requires_grad=True)
class Probe:
    def __init__(self):
        self.seen = []

    def at(self, value):
        w.grad = None
        x.grad = None
        w.data.fill_(value)
        (w * x).pow(2).sum().backward()
        self.seen.append((w.grad.clone(), x.grad.clone()))
probe = Probe()
