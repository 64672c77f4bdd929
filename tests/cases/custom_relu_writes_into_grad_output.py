# %% [case]
# id: custom-relu-writes-into-grad-output
# source: own autograd Function as in an old tutorial, without the clone in backward
# family: silent
# fails: -
# culprit: 1:14
# saved: -
# needed: 3:3
# effect: same
# observe: [p.grad.clone() for p in net.parameters()]
# note: the sum hands the same gradient tensor to both branches, MyReLU.backward zeroes parts of it for the other one. Fix: grad_output.clone().
# %%
import torch
from torch import nn

class MyReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return input.clamp(min=0)

    @staticmethod
    def backward(ctx, grad_output):
        input, = ctx.saved_tensors
        grad_input = grad_output
        grad_input[input < 0] = 0
        return grad_input
# %%
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 5), nn.Linear(4, 5)
        self.out = nn.Linear(5, 1)
    def forward(self, x):
        return self.out(self.a(x) + MyReLU.apply(self.b(x)))
torch.manual_seed(0)
net = Net()
# %%
x, y = torch.randn(6, 4), torch.randn(6, 1)
loss = (net(x) - y).pow(2).sum()
loss.backward()
# %% [fixed 1]
import torch
from torch import nn

class MyReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return input.clamp(min=0)

    @staticmethod
    def backward(ctx, grad_output):
        input, = ctx.saved_tensors
        grad_input = grad_output.clone()
        grad_input[input < 0] = 0
        return grad_input
