# %% [case]
# id: init-weights-fill-in-constructor
# source: custom layer with its own initialisation
# family: leaf
# fails: 2
# culprit: 1:14
# saved: -
# needed: 1:14
# effect: same
# observe: [layer.weight.detach().clone(), layer.bias.detach().clone()]
# note: uniform_ on a Parameter without no_grad in reset_parameters. Fix: with torch.no_grad().
# %%
import math
import torch
from torch import nn

class NoisyLinear(nn.Module):
    def __init__(self, fan_in, fan_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(fan_out, fan_in))
        self.bias = nn.Parameter(torch.empty(fan_out))
        self.reset_parameters()

    def reset_parameters(self):
        bound = 1 / math.sqrt(self.weight.size(1))
        self.weight.uniform_(-bound, bound)
        self.bias.fill_(0.1)

    def forward(self, x):
        return nn.functional.linear(x + 0.01 * torch.randn_like(x), self.weight, self.bias)
# %%
torch.manual_seed(0)
layer = NoisyLinear(6, 3)
print(layer)
# %% [fixed 1]
import math
import torch
from torch import nn

class NoisyLinear(nn.Module):
    def __init__(self, fan_in, fan_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(fan_out, fan_in))
        self.bias = nn.Parameter(torch.empty(fan_out))
        self.reset_parameters()

    def reset_parameters(self):
        bound = 1 / math.sqrt(self.weight.size(1))
        with torch.no_grad():
            self.weight.uniform_(-bound, bound)
            self.bias.fill_(0.1)

    def forward(self, x):
        return nn.functional.linear(x + 0.01 * torch.randn_like(x), self.weight, self.bias)
