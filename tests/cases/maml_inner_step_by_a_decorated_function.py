# %% [case]
# id: maml-inner-step-by-a-decorated-function
# source: https://discuss.pytorch.org/t/another-way-to-implement-maml-model-agnostic-meta-learning/164439 (and jik0730/MAML-in-pytorch#5: "optimizer.step() operates in-place")
# family: modified
# fails: 4
# culprit: 2:4
# saved: 1:13
# needed: 4:3
# effect: other
# observe: [p.detach().clone() for p in regressor.parameters()] + [meta.detach()]
# note: sgd_step copies the adapted weights into the parameters, the graph kept by create_graph=True goes through their old values. Human fix: functional fast weights (torch.func.functional_call).
# %%
from collections import namedtuple
import torch
from torch import nn
from torch.func import functional_call

Task = namedtuple("Task", "x_tr y_tr x_te y_te")

class Regressor(nn.Module):
    def __init__(self, hidden=7):
        super().__init__()
        self.inp, self.mid, self.out = nn.Linear(2, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, 1)
    def forward(self, x):
        return self.out(torch.sigmoid(self.mid(torch.sigmoid(self.inp(x)))))

def random_task():
    x, coef = torch.randn(14, 2), torch.randn(2, 1)
    y = (x @ coef).sin()
    return Task(x[:7], y[:7], x[7:], y[7:])
# %%
@torch.no_grad()
def sgd_step(params, grads, lr):
    for p, g in zip(params, grads):
        p.copy_(p - lr * g)

def inner_losses(net, task, n, lr=0.1):
    """yields the training loss before each inner step, the test loss at the end"""
    for _ in range(n):
        train = nn.functional.l1_loss(net(task.x_tr), task.y_tr)
        grads = torch.autograd.grad(train, tuple(net.parameters()), create_graph=True)
        sgd_step(net.parameters(), grads, lr)
        yield 0.3 * train
    yield nn.functional.l1_loss(net(task.x_te), task.y_te)
# %%
torch.manual_seed(31)
regressor = Regressor()
opt = torch.optim.RMSprop(regressor.parameters(), lr=1e-3)
# %%
for epoch in range(3):
    meta = sum(sum(inner_losses(regressor, random_task(), n=2)) for _ in range(2))
    opt.zero_grad(); meta.backward()
    opt.step()
    print(f"{epoch}: meta loss {meta.item():.4f}")
# %% [fixed 2]
def sgd_step(params, grads, lr):
    return {name: p - lr * g for (name, p), g in zip(params.items(), grads)}

def inner_losses(net, task, n, lr=0.1):
    """yields the training loss before each inner step, the test loss at the end"""
    fast = dict(net.named_parameters())
    for _ in range(n):
        train = nn.functional.l1_loss(functional_call(net, fast, (task.x_tr,)), task.y_tr)
        grads = torch.autograd.grad(train, tuple(fast.values()), create_graph=True)
        fast = sgd_step(fast, grads, lr)
        yield 0.3 * train
    yield nn.functional.l1_loss(functional_call(net, fast, (task.x_te,)), task.y_te)
