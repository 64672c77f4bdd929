# %% [case]
# id: hypergradient-momentum-buffer-in-place
# source: pytorch/pytorch#143122, facebookresearch/higher#32 (trainable step size, inner loop unrolled with create_graph)
# family: modified
# fails: 4
# culprit: 2:16
# saved: 2:17
# needed: 4:13
# effect: same
# observe: [meta_loss.detach(), meta.log_lr.grad.clone()] + [p.grad.clone() for p in meta.init]
# note: a hand-written differentiable SGD keeps the in-place momentum update of torch.optim. The step lr * buf saves buf for the gradient of lr (and, through create_graph, the buffer carries the graph of the inner gradients); the next inner step multiplies it in place. Fix: buf = momentum * buf + g, out of place.
# %%
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(143122)
# %%
class DiffSGD:
    """SGD with momentum whose updates stay in the graph (params are plain tensors, replaced every step)."""

    def __init__(self, lr, momentum=0.9):
        self.lr = lr
        self.momentum = momentum
        self.state = {}

    def step(self, params, grads):
        new_params = []
        for i, (p, g) in enumerate(zip(params, grads)):
            if i not in self.state:
                buf = self.state[i] = torch.clone(g)
            else:
                buf = self.state[i]
                buf.mul_(self.momentum).add_(g)
            new_params.append(p - self.lr * buf)
        return new_params


def mlp(x, params):
    w1, b1, w2, b2 = params
    return F.linear(torch.tanh(F.linear(x, w1, b1)), w2, b2)
# %%
class MetaLearner(nn.Module):
    def __init__(self, hidden=6):
        super().__init__()
        net = nn.Sequential(nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, 1))
        self.init = nn.ParameterList([p.detach().clone() for p in net.parameters()])
        self.log_lr = nn.Parameter(torch.tensor(-2.0))

    def adapt(self, x, y, inner_steps=3):
        opt = DiffSGD(lr=self.log_lr.exp())
        fast = list(self.init)
        for _ in range(inner_steps):
            inner_loss = F.mse_loss(mlp(x, fast), y)
            grads = torch.autograd.grad(inner_loss, fast, create_graph=True)
            fast = opt.step(fast, grads)
        return fast

meta = MetaLearner()
outer = torch.optim.Adam(meta.parameters(), lr=1e-2)
# %%
def sample_sinusoid(k=8):
    amp, phase = torch.rand(1) * 4 + 0.1, torch.rand(1) * 3.14
    x = torch.rand(2 * k, 1) * 10 - 5
    y = amp * torch.sin(x + phase)
    return x[:k], y[:k], x[k:], y[k:]

meta_loss = 0.
tasks = [sample_sinusoid() for _ in range(2)]
for xs, ys, xq, yq in tasks:
    fast = meta.adapt(xs, ys)
    meta_loss = meta_loss + F.mse_loss(mlp(xq, fast), yq) / len(tasks)
outer.zero_grad()
meta_loss.backward()
outer.step()
print(meta_loss.item(), meta.log_lr.exp().item())
# %% [fixed 2]
class DiffSGD:
    """SGD with momentum whose updates stay in the graph (params are plain tensors, replaced every step)."""

    def __init__(self, lr, momentum=0.9):
        self.lr = lr
        self.momentum = momentum
        self.state = {}

    def step(self, params, grads):
        new_params = []
        for i, (p, g) in enumerate(zip(params, grads)):
            if i not in self.state:
                buf = self.state[i] = torch.clone(g)
            else:
                buf = self.state[i] = self.momentum * self.state[i] + g
            new_params.append(p - self.lr * buf)
        return new_params


def mlp(x, params):
    w1, b1, w2, b2 = params
    return F.linear(torch.tanh(F.linear(x, w1, b1)), w2, b2)
