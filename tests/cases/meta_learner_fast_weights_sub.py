# %% [case]
# id: meta-learner-fast-weights-sub
# source: few-shot regression, MAML with a functional net and fast weights in a list
# family: modified
# fails: 4
# culprit: 2:7
# saved: 1:6 | 1:7 | 2:5
# needed: 4:7
# effect: same
# observe: [w.grad.clone() for w in theta]
# note: the fast weights were saved by the functional forward and are changed by sub_. Fix: fast = [w - lr * g ...].
# %%
import torch
import torch.nn.functional as F
torch.manual_seed(0)

def net(x, w):
    h = F.relu(F.linear(x, w[0], w[1]))
    return F.linear(h, w[2], w[3])

theta = [torch.randn(8, 1) * 0.5, torch.zeros(8), torch.randn(1, 8) * 0.5, torch.zeros(1)]
for w in theta:
    w.requires_grad_()
# %%
def adapt(theta, xs, ys, inner_lr=0.05, steps=2):
    fast = [w.clone() for w in theta]
    for _ in range(steps):
        l = F.mse_loss(net(xs, fast), ys)
        grads = torch.autograd.grad(l, fast, create_graph=True)
        for w, g in zip(fast, grads):
            w.sub_(inner_lr * g)
    return fast
# %%
def sample_task():
    a, ph = torch.rand(1) * 4 + .1, torch.rand(1) * 3
    x = torch.rand(10, 1) * 10 - 5
    return x, a * torch.sin(x + ph)
meta_opt = torch.optim.SGD(theta, lr=1e-2)
# %%
meta_loss = 0.
for _ in range(2):
    x, y = sample_task()
    fast = adapt(theta, x[:5], y[:5])
    meta_loss = meta_loss + F.mse_loss(net(x[5:], fast), y[5:])
meta_opt.zero_grad()
meta_loss.backward()
meta_opt.step()
# %% [fixed 2]
def adapt(theta, xs, ys, inner_lr=0.05, steps=2):
    fast = [w.clone() for w in theta]
    for _ in range(steps):
        l = F.mse_loss(net(xs, fast), ys)
        grads = torch.autograd.grad(l, fast, create_graph=True)
        fast = [w - inner_lr * g for w, g in zip(fast, grads)]
    return fast
