# %% [case]
# id: instance-norm-by-hand
# source: hand written normalisation layer in a style network
# family: modified
# fails: 3
# culprit: 1:13
# saved: 1:11
# needed: 3:4
# effect: same
# observe: [p.grad.clone() for p in net.parameters()]
# note: x.pow(2) saved the centred x, x /= std then overwrites it. Fix: x = x / std.
# %%
import torch
import torch.nn as nn

class InstanceNorm(nn.Module):
    def __init__(self, epsilon=1e-8):
        super(InstanceNorm, self).__init__()
        self.epsilon = epsilon

    def forward(self, x):
        x = x - torch.mean(x, (2, 3), True)
        tmp = torch.mul(x, x)                       # or x ** 2
        tmp = torch.rsqrt(torch.mean(tmp, (2, 3), True) + self.epsilon)
        x *= tmp
        return x

class ApplyStyle(nn.Module):
    def __init__(self, latent, c):
        super(ApplyStyle, self).__init__()
        self.linear = nn.Linear(latent, c * 2)

    def forward(self, x, w):
        style = self.linear(w).view(-1, 2, x.size(1), 1, 1)
        return x * (style[:, 0] + 1.) + style[:, 1]
# %%
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.style = nn.Conv2d(2, 3, 3), InstanceNorm(), ApplyStyle(4, 3)
    def forward(self, x, w):
        return self.style(self.norm(self.conv(x)), w)
# %%
torch.manual_seed(0)
net = Net()
img = net(torch.randn(2, 2, 6, 6), torch.randn(2, 4))
img.abs().mean().backward()
# %% [fixed 1]
import torch
import torch.nn as nn

class InstanceNorm(nn.Module):
    def __init__(self, epsilon=1e-8):
        super(InstanceNorm, self).__init__()
        self.epsilon = epsilon

    def forward(self, x):
        x = x - torch.mean(x, (2, 3), True)
        tmp = torch.mul(x, x)                       # or x ** 2
        tmp = torch.rsqrt(torch.mean(tmp, (2, 3), True) + self.epsilon)
        return x * tmp

class ApplyStyle(nn.Module):
    def __init__(self, latent, c):
        super(ApplyStyle, self).__init__()
        self.linear = nn.Linear(latent, c * 2)

    def forward(self, x, w):
        style = self.linear(w).view(-1, 2, x.size(1), 1, 1)
        return x * (style[:, 0] + 1.) + style[:, 1]
