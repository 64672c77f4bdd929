# %% [case]
# id: silent-hook-scales-gradient-in-place
# source: pytorch/pytorch#60456 (both inputs of + get one gradient tensor); meta-pytorch/opacus#9; docs Tensor.register_hook (the hook should not modify its argument)
# family: silent
# fails: -
# culprit: 2:8
# saved: -
# needed: 4:2
# effect: same
# observe: [loss.detach()] + [p.grad.clone() for p in net.parameters()]
# note: the hook scales the branch's gradient in place. AddBackward hands one and the same tensor to both operands and the branch, made last, runs first: the shortcut's gradient is scaled too, and with it everything in front of it. Nothing is saved for backward here, so no check can fire. Fix: return a new tensor from the hook.
# %%
import torch
import torch.nn as nn
from collections import OrderedDict
torch.manual_seed(3)
# %%
class GradScale:
    """slow the gradient that enters a branch (fixup style), logs the norm it saw"""
    def __init__(self, lam, name, log):
        self.lam, self.name, self.log = lam, name, log

    def __call__(self, grad):
        self.log.setdefault(self.name, []).append(float(grad.norm()))
        grad.mul_(self.lam)


class ResBlock(nn.Module):
    def __init__(self, cin, cout, lam, log, name):
        super().__init__()
        self.shortcut = nn.Conv1d(cin, cout, 1)
        self.body = nn.Sequential(OrderedDict([
            ("conv1", nn.Conv1d(cin, cout, 3, padding=1)), ("act", nn.SiLU()),
            ("conv2", nn.Conv1d(cout, cout, 3, padding=1))]))
        self.scale = GradScale(lam, name, log)

    def forward(self, x):
        res = self.shortcut(x)
        out = self.body(x)
        if out.requires_grad:
            out.register_hook(self.scale)
        return res + out
# %%
grad_log = {}
net = nn.Sequential(ResBlock(2, 4, 0.1, grad_log, "b1"), nn.SiLU(), ResBlock(4, 4, 0.1, grad_log, "b2"),
                    nn.Flatten(), nn.Linear(4 * 8, 3))
# net.apply(init_fixup)
signal, label = torch.randn(6, 2, 8), torch.randint(0, 3, (6,))
# %%
loss = nn.functional.cross_entropy(net(signal), label)
loss.backward()
for k, v in grad_log.items():
    print(k, v)
print("shortcut grad", net[0].shortcut.weight.grad.abs().mean().item())   # suspiciously small
# %% [fixed 2]
class GradScale:
    """slow the gradient that enters a branch (fixup style), logs the norm it saw"""
    def __init__(self, lam, name, log):
        self.lam, self.name, self.log = lam, name, log

    def __call__(self, grad):
        self.log.setdefault(self.name, []).append(float(grad.norm()))
        return grad * self.lam


class ResBlock(nn.Module):
    def __init__(self, cin, cout, lam, log, name):
        super().__init__()
        self.shortcut = nn.Conv1d(cin, cout, 1)
        self.body = nn.Sequential(OrderedDict([
            ("conv1", nn.Conv1d(cin, cout, 3, padding=1)), ("act", nn.SiLU()),
            ("conv2", nn.Conv1d(cout, cout, 3, padding=1))]))
        self.scale = GradScale(lam, name, log)

    def forward(self, x):
        res = self.shortcut(x)
        out = self.body(x)
        if out.requires_grad:
            out.register_hook(self.scale)
        return res + out
