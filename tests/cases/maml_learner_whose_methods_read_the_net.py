# %% [case]
# id: maml-learner-whose-methods-read-the-net
# source: https://discuss.pytorch.org/t/another-way-to-implement-maml-model-agnostic-meta-learning/164439 (and jik0730/MAML-in-pytorch#5: "optimizer.step() operates in-place")
# family: modified
# fails: 4
# culprit: 2:12
# saved: 2:8
# needed: 4:5
# effect: other
# observe: [p.detach().clone() for p in learner.net.parameters()] + [outer.detach()]
# note: adapt writes the new weights into the parameters under no_grad although create_graph=True keeps the graph of the inner losses. Human fix: functional fast weights (torch.func.functional_call).
# %%
import torch, torch.nn as nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy
torch.manual_seed(17)

def episodes(n_way=3, dim=4):
    while True:
        centres = 2 * torch.randn(n_way, dim)
        y = torch.arange(n_way).repeat(4)
        x = centres[y] + 0.3 * torch.randn(len(y), dim)
        yield (x[:6], y[:6]), (x[6:], y[6:])
# %%
class Learner:
    def __init__(self, net, inner_lr=0.1, inner_steps=2):
        self.net, self.inner_lr, self.inner_steps = net, inner_lr, inner_steps

    def adapt(self, x, y):
        trace = []
        for _ in range(self.inner_steps):
            trace.append(cross_entropy(self.net(x), y))
            grads = torch.autograd.grad(trace[-1], self.net.parameters(), create_graph=True)
            with torch.no_grad():
                for (name, p), g in zip(self.net.named_parameters(), grads):
                    p -= self.inner_lr * g
        return trace

    def episode_loss(self, support, query):
        trace = self.adapt(*support)
        xq, yq = query
        return cross_entropy(self.net(xq), yq) + 0.2 * sum(trace)
# %%
learner = Learner(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)))
optimizer = torch.optim.SGD(learner.net.parameters(), lr=0.01)
stream = episodes()
# %%
for step in range(3):
    support, query = next(stream)
    outer = learner.episode_loss(support, query)
    optimizer.zero_grad()
    outer.backward()
    optimizer.step()
    print(step, outer.item())
# %% [fixed 2]
class Learner:
    def __init__(self, net, inner_lr=0.1, inner_steps=2):
        self.net, self.inner_lr, self.inner_steps = net, inner_lr, inner_steps

    def adapt(self, x, y):
        trace, fast = [], dict(self.net.named_parameters())
        for _ in range(self.inner_steps):
            trace.append(cross_entropy(functional_call(self.net, fast, (x,)), y))
            grads = torch.autograd.grad(trace[-1], list(fast.values()), create_graph=True)
            fast = {name: p - self.inner_lr * g for (name, p), g in zip(fast.items(), grads)}
        return trace, fast

    def episode_loss(self, support, query):
        trace, fast = self.adapt(*support)
        xq, yq = query
        return cross_entropy(functional_call(self.net, fast, (xq,)), yq) + 0.2 * sum(trace)
