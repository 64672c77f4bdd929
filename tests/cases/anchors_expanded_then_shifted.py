# %% [case]
# id: anchors-expanded-then-shifted
# source: region proposals, anchors expanded over the batch and shifted by the predicted offsets
# family: overlap
# fails: 3
# culprit: 2:9
# saved: -
# needed: 2:9
# effect: same
# observe: [rpn.weight.grad.clone()]
# note: boxes is an expand of the anchors; `boxes[..., :2] += ` writes shared memory. Fix: .clone().
# %%
import torch
from torch import nn
torch.manual_seed(0)
rpn = nn.Conv2d(3, 4, 1)
anchors = torch.rand(16, 4)
# %%
class BoxCoder:
    def __init__(self, weights=(10., 5.)):
        self.weights = weights

    def decode(self, deltas, anchors):
        wx, ww = self.weights
        boxes = anchors.unsqueeze(0).expand(len(deltas), -1, -1)
        # centre
        boxes[..., :2] += deltas[..., :2] / wx
        boxes[..., 2:] *= torch.exp(deltas[..., 2:] / ww)
        return boxes
# %%
deltas = rpn(torch.randn(2, 3, 4, 4)).flatten(2).transpose(1, 2)
boxes = BoxCoder().decode(deltas, anchors)
loss = nn.functional.l1_loss(boxes, torch.rand(2, 16, 4))
loss.backward()
# %% [fixed 2]
class BoxCoder:
    def __init__(self, weights=(10., 5.)):
        self.weights = weights

    def decode(self, deltas, anchors):
        wx, ww = self.weights
        boxes = anchors.unsqueeze(0).expand(len(deltas), -1, -1).clone()
        # centre
        boxes[..., :2] += deltas[..., :2] / wx
        boxes[..., 2:] *= torch.exp(deltas[..., 2:] / ww)
        return boxes
