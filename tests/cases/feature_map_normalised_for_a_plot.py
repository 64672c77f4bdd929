# %% [case]
# id: feature-map-normalised-for-a-plot
# source: convolutional network, the first feature map scaled for a figure before the backward
# family: silent
# fails: -
# culprit: 1:8
# saved: 3:1 | 3:2
# needed: 3:5
# effect: same
# observe: [p.grad.clone() for p in cnn.parameters()]
# note: numpy() of the detached map shares its memory; scaling it for the plot changes what relu and conv saved. Fix: .copy().
# %%
import numpy as np
import torch
import torch.nn as nn

def to_image(fmap):
    """feature map -> uint8 for imshow"""
    img = fmap.detach().numpy()
    img -= img.min()
    img /= img.max() + 1e-8
    return (255 * img).astype(np.uint8)
# %%
torch.manual_seed(0)
cnn = nn.ModuleDict(dict(c1=nn.Conv2d(1, 3, 3), c2=nn.Conv2d(3, 2, 3)))
x = torch.rand(1, 1, 8, 8)
# %%
h = torch.tanh(cnn['c1'](x))
out = cnn['c2'](h)
loss = out.pow(2).mean()
picture = to_image(h[0, 0])
loss.backward()
print(picture.shape, loss.item())
# %% [fixed 1]
import numpy as np
import torch
import torch.nn as nn

def to_image(fmap):
    """feature map -> uint8 for imshow"""
    img = fmap.detach().numpy().copy()
    img -= img.min()
    img /= img.max() + 1e-8
    return (255 * img).astype(np.uint8)
