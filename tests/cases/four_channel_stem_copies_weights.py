# %% [case]
# id: four-channel-stem-copies-weights
# source: segmentation notebook that widens the first convolution to four channels
# family: view_of_leaf
# fails: 3
# culprit: 2:4
# saved: -
# needed: 2:4
# effect: same
# observe: [stem.weight.detach().clone(), loss.detach()]
# note: assigning to slices of a Parameter outside no_grad. Fix: with torch.no_grad().
# %%
import torch
from torch import nn
torch.manual_seed(5)
backbone = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 2, 1))
# %%
def widen(conv, extra=1):
    """RGB -> RGB + depth; keeps what the RGB filters learned"""
    new = nn.Conv2d(conv.in_channels + extra, conv.out_channels, conv.kernel_size, padding=conv.padding)
    new.weight[:, :3] = conv.weight
    new.weight[:, 3:] = conv.weight.mean(1, keepdim=True)
    new.bias = conv.bias
    return new
# %%
stem = widen(backbone[0])
backbone[0] = stem
rgbd = torch.rand(2, 4, 6, 6)
loss = backbone(rgbd).mean()
loss.backward()
# %% [fixed 2]
def widen(conv, extra=1):
    """RGB -> RGB + depth; keeps what the RGB filters learned"""
    new = nn.Conv2d(conv.in_channels + extra, conv.out_channels, conv.kernel_size, padding=conv.padding)
    with torch.no_grad():
        new.weight[:, :3] = conv.weight
        new.weight[:, 3:] = conv.weight.mean(1, keepdim=True)
    new.bias = conv.bias
    return new
