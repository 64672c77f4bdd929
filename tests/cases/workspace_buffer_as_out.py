# %% [case]
# id: workspace-buffer-as-out
# source: recurrent kernel with a preallocated workspace
# family: out_grad
# fails: 3
# culprit: 1:10
# saved: -
# needed: 1:10
# effect: same
# observe: [W.grad.clone()]
# note: out= cannot record a gradient for the weights. Fix: pre = x @ W.
# %%
import torch

class Workspace:
    def __init__(self, n, d):
        self.pre = torch.empty(n, d)
        self.steps = 0

    def project(self, x, W):
        self.steps += 1
        torch.mm(x, W, out=self.pre)
        return self.pre
# %%
torch.manual_seed(0)
W = torch.randn(4, 4, requires_grad=True)
ws = Workspace(3, 4)
x = torch.randn(3, 4)
# %%
for _ in range(3):
    x = torch.tanh(ws.project(x, W))
x.sum().backward()
# %% [fixed 1]
import torch

class Workspace:
    def __init__(self, n, d):
        self.pre = torch.empty(n, d)
        self.steps = 0

    def project(self, x, W):
        self.steps += 1
        self.pre = torch.mm(x, W)
        return self.pre
