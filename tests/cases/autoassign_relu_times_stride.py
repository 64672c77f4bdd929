# %% [case]
# id: autoassign-relu-times-stride
# source: open-mmlab/mmdetection#7074
# family: modified
# fails: 4
# culprit: 2:28
# saved: 2:27
# needed: 4:6
# effect: same
# observe: [loss.detach(), head.conv_reg.weight.grad.clone(), head.scales[1].scale.grad.clone()]
# note: bbox_pred = F.relu(...); bbox_pred *= stride overwrites the result ReLU saved, once per level (forward_single is called through multi_apply). Merged fix: clamp(min=0), which saves its input, in place of F.relu; the *= line stays. The line edited is the saving one, not the writing one.
# %%
from functools import partial
import torch
import torch.nn as nn
import torch.nn.functional as F


def multi_apply(func, *args, **kwargs):
    pfunc = partial(func, **kwargs) if kwargs else func
    map_results = map(pfunc, *args)
    return tuple(map(list, zip(*map_results)))
# %%
class Scale(nn.Module):
    def __init__(self, scale=1.0):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale, dtype=torch.float))

    def forward(self, x):
        return x * self.scale


class AutoAssignHead(nn.Module):
    """anchor-free head, predicts l, t, r, b in pixels of the input image"""

    def __init__(self, num_classes, in_channels, strides=(8, 16)):
        super().__init__()
        self.strides = strides
        self.conv_cls = nn.Conv2d(in_channels, num_classes, 3, padding=1)
        self.conv_reg = nn.Conv2d(in_channels, 4, 3, padding=1)
        self.conv_centerness = nn.Conv2d(in_channels, 1, 3, padding=1)
        self.scales = nn.ModuleList([Scale(1.0) for _ in strides])

    def forward_single(self, x, scale, stride):
        cls_score = self.conv_cls(x)
        centerness = self.conv_centerness(x)
        # scale the bbox_pred of different level
        # float to avoid overflow when enabling FP16
        bbox_pred = scale(self.conv_reg(x)).float()
        bbox_pred = F.relu(bbox_pred)
        bbox_pred *= stride
        return cls_score, bbox_pred, centerness

    def forward(self, feats):
        return multi_apply(self.forward_single, feats, self.scales, self.strides)
# %%
torch.manual_seed(0)
head = AutoAssignHead(num_classes=2, in_channels=4)
feats = [torch.randn(2, 4, 8, 8), torch.randn(2, 4, 4, 4)]
targets = [16 * torch.rand(2, 4, 8, 8), 32 * torch.rand(2, 4, 4, 4)]


def loss_bbox(pred, target):
    # -log(IoU) of two boxes around the same point
    inter = torch.min(pred[:, 0], target[:, 0]) + torch.min(pred[:, 2], target[:, 2])
    inter = inter * (torch.min(pred[:, 1], target[:, 1]) + torch.min(pred[:, 3], target[:, 3]))
    area = lambda b: (b[:, 0] + b[:, 2]) * (b[:, 1] + b[:, 3])
    iou = inter / (area(pred) + area(target) - inter + 1.0)
    return -(iou + 1e-3).log().mean()
# %%
cls_scores, bbox_preds, objectnesses = head(feats)
losses = dict(loss_pos=sum(map(loss_bbox, bbox_preds, targets)),
              loss_neg=sum(c.sigmoid().pow(2).mean() for c in cls_scores),
              loss_center=sum((1 - o.sigmoid()).mean() for o in objectnesses))
loss = sum(v for k, v in losses.items() if k.startswith('loss_'))
loss.backward()
{k: round(v.item(), 4) for k, v in losses.items()}
# %% [fixed 2]
class Scale(nn.Module):
    def __init__(self, scale=1.0):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale, dtype=torch.float))

    def forward(self, x):
        return x * self.scale


class AutoAssignHead(nn.Module):
    """anchor-free head, predicts l, t, r, b in pixels of the input image"""

    def __init__(self, num_classes, in_channels, strides=(8, 16)):
        super().__init__()
        self.strides = strides
        self.conv_cls = nn.Conv2d(in_channels, num_classes, 3, padding=1)
        self.conv_reg = nn.Conv2d(in_channels, 4, 3, padding=1)
        self.conv_centerness = nn.Conv2d(in_channels, 1, 3, padding=1)
        self.scales = nn.ModuleList([Scale(1.0) for _ in strides])

    def forward_single(self, x, scale, stride):
        cls_score = self.conv_cls(x)
        centerness = self.conv_centerness(x)
        # scale the bbox_pred of different level
        # float to avoid overflow when enabling FP16
        bbox_pred = scale(self.conv_reg(x)).float()
        bbox_pred = bbox_pred.clamp(min=0)
        bbox_pred *= stride
        return cls_score, bbox_pred, centerness

    def forward(self, feats):
        return multi_apply(self.forward_single, feats, self.scales, self.strides)
