# %% [case]
# id: calibration-coefficients-view-grad-none
# source: pytorch/pytorch#1479 (view on a variable: grad stays None)
# family: silent
# fails: -
# culprit: 2:1
# saved: -
# needed: -
# effect: same
# observe: [gains.grad, offset.grad, loss.detach()]
# note: gains is the result of .view() on the tensor with requires_grad, hence not a leaf: its .grad stays None and only the offset gets a gradient. Fix: reshape first, then ask for the gradient (torch.tensor([...]).view(3, 1).requires_grad_()).
# %%
import torch
torch.manual_seed(14)

# readings of a three channel thermometer and the reference
readings = torch.randn(30, 3) + torch.tensor([1.0, 0.5, -0.5])
reference = readings @ torch.tensor([[0.7], [0.2], [0.1]]) + 0.3

def report(**tensors):
    for name, t in tensors.items():
        grad = None if t.grad is None else t.grad.flatten().tolist()
        print(f'{name:8s} value {t.flatten().tolist()} grad {grad}')
# %%
gains = torch.tensor([1.0, 1.0, 1.0], requires_grad=True).view(3, 1)
offset = torch.zeros(1, requires_grad=True)

def calibrated(x):
    return x @ gains + offset
# %%
error = calibrated(readings) - reference
loss = error.pow(2).mean()
loss.backward()

print('needs grad:', gains.requires_grad, offset.requires_grad)
report(gains=gains, offset=offset)
# %% [fixed 2]
gains = torch.tensor([1.0, 1.0, 1.0]).view(3, 1).requires_grad_()
offset = torch.zeros(1, requires_grad=True)

def calibrated(x):
    return x @ gains + offset
