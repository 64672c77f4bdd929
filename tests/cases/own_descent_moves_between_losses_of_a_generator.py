# %% [case]
# id: own-descent-moves-between-losses-of-a-generator
# source: Anomaly Transformer, with a descent of its own
# family: modified
# fails: 4
# culprit: 1:14|4:7
# saved: -
# needed: 4:5
# effect: same
# observe: [p.detach().clone() for p in net.parameters()] + seen
# note: a generator gives two losses of one forward, and weights are updated by hand after each. Fix: one update, behind the loop.
# %%
import torch
import torch.nn as nn
torch.manual_seed(6)

class Descent:
    def __init__(self, params, rate):
        self.params, self.rate = list(params), rate
    def clear(self):
        for p in self.params:
            p.grad = None
    @torch.no_grad()
    def move(self):
        for p in (one for one in self.params if one.grad is not None):
            p.sub_(self.rate * p.grad)
# %%
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer, self.scale = nn.Linear(3, 5), nn.Linear(5, 3), nn.Linear(5, 1)
    def forward(self, x):
        h = torch.tanh(self.inner(x))
        return self.outer(h), torch.softmax(h, -1), torch.sigmoid(self.scale(h))

def both(net, x):
    out, weights, scale = net(x)
    error = (out - x).square().mean()
    yield error - (weights * scale.detach()).square().mean()
    yield error + (weights.detach() * scale).square().mean()
# %%
net = Net()
descent = Descent(net.parameters(), rate=0.05)
data = torch.randn(2, 6, 3)
# %%
for batch in data:
    seen = []
    descent.clear()
    for loss in both(net, batch):
        loss.backward(retain_graph=True)
        seen.append(loss.detach())
        descent.move()
# %% [fixed 4]
for batch in data:
    seen = []
    descent.clear()
    for loss in both(net, batch):
        loss.backward(retain_graph=True)
        seen.append(loss.detach())
    descent.move()
