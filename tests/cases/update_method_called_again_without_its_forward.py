# %% [case]
# id: update-method-called-again-without-its-forward
# source: a textbook mistake in other words
# family: second_backward
# fails: 4
# culprit: -
# saved: -
# needed: 1:14|4:2
# effect: same
# observe: [p.detach().clone() for p in fit.net.parameters()]
# note: the method that goes back is called again, the one that scores is not. A kept graph would be that of the weights of before.
# %%
import torch
import torch.nn as nn

class Fit:
    def __init__(self, rate=0.2):
        self.net = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 1))
        self.rate, self.error = rate, None

    def score(self, x, y):
        self.error = (self.net(x).squeeze(-1) - y).square().mean()
        return self.error.item()

    def descend(self):
        self.error.backward()
        for p in self.net.parameters():
            p.data = p.data - self.rate * p.grad
            p.grad = None
# %%
torch.manual_seed(5)
x = torch.randn(12, 2)
y = x.prod(1)
fit = Fit()
first = fit.score(x, y)
# %%
fit.descend()
# %%
x, y = x[:8], y[:8]
fit.descend()
# %% [fixed 4]
x, y = x[:8], y[:8]
fit.score(x, y)
fit.descend()
