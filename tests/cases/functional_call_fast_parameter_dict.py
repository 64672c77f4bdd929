# %% [case]
# id: functional-call-fast-parameter-dict
# source: meta-learning with functional_call and a dict of fast parameters
# family: modified
# fails: 3
# culprit: 2:7
# saved: 2:4 | 2:5
# needed: 3:4
# effect: same
# observe: [p.grad.clone() for p in net.parameters()]
# note: fast[k] -= ... changes the tensors that the inner forward saved. Fix: fast[k] = fast[k] - ...
# %%
import torch
from torch import nn
from torch.func import functional_call
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
mse = nn.MSELoss()
# %%
def inner_loop(net, x, y, lr=0.1, steps=2):
    fast = {k: v.clone() for k, v in net.named_parameters()}
    for _ in range(steps):
        l = mse(functional_call(net, fast, (x,)), y)
        grads = torch.autograd.grad(l, list(fast.values()), create_graph=True)
        for k, g in zip(list(fast), grads):
            fast[k] -= lr * g
    return fast
# %%
x = torch.linspace(-1, 1, 8)[:, None]
fast = inner_loop(net, x[::2], torch.sin(3 * x[::2]))
meta = mse(functional_call(net, fast, (x[1::2],)), torch.sin(3 * x[1::2]))
meta.backward()
# %% [fixed 2]
def inner_loop(net, x, y, lr=0.1, steps=2):
    fast = {k: v.clone() for k, v in net.named_parameters()}
    for _ in range(steps):
        l = mse(functional_call(net, fast, (x,)), y)
        grads = torch.autograd.grad(l, list(fast.values()), create_graph=True)
        for k, g in zip(list(fast), grads):
            fast[k] = fast[k] - lr * g
    return fast
