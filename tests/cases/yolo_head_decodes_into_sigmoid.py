# %% [case]
# id: yolo-head-decodes-into-sigmoid
# source: one-stage detector, the inference decode of the head used while training
# family: modified
# fails: 3
# culprit: 1:20
# saved: 1:19
# needed: 3:7
# effect: same
# observe: [p.grad.clone() for p in detect.parameters()]
# note: y is the result of sigmoid, slices of it are overwritten. Fix: new xy, wh and a cat.
# %%
import torch
from torch import nn

class Detect(nn.Module):
    stride = 8.
    def __init__(self, nc=2, anchors=((10., 13.), (16., 30.)), ch=4):
        super().__init__()
        self.no = nc + 5
        self.na = len(anchors)
        self.register_buffer('anchor_grid', torch.tensor(anchors).view(1, -1, 1, 1, 2))
        self.m = nn.Conv2d(ch, self.no * self.na, 1)

    def forward(self, x):
        x = self.m(x)
        bs, _, ny, nx = x.shape
        x = x.view(bs, self.na, self.no, ny, nx).permute(0, 1, 3, 4, 2).contiguous()
        yv, xv = torch.meshgrid(torch.arange(ny), torch.arange(nx), indexing='ij')
        grid = torch.stack((xv, yv), 2).view(1, 1, ny, nx, 2).float()
        y = x.sigmoid()
        y[..., 0:2] = (y[..., 0:2] * 2. - 0.5 + grid) * self.stride  # xy
        y[..., 2:4] = (y[..., 2:4] * 2) ** 2 * self.anchor_grid  # wh
        return y.view(bs, -1, self.no)
# %%
def box_loss(pred, tbox):
    l1 = (pred[..., :4] - tbox).abs().mean() / 8
    obj = -torch.log(pred[..., 4].clamp(1e-4, 1 - 1e-4)).mean()
    return l1 + obj
# %%
torch.manual_seed(1)
detect = Detect()
fmap = torch.randn(2, 4, 3, 3)
tbox = torch.rand(2, 18, 4) * 24
pred = detect(fmap)
loss = box_loss(pred, tbox)
loss.backward()
# %% [fixed 1]
import torch
from torch import nn

class Detect(nn.Module):
    stride = 8.
    def __init__(self, nc=2, anchors=((10., 13.), (16., 30.)), ch=4):
        super().__init__()
        self.no = nc + 5
        self.na = len(anchors)
        self.register_buffer('anchor_grid', torch.tensor(anchors).view(1, -1, 1, 1, 2))
        self.m = nn.Conv2d(ch, self.no * self.na, 1)

    def forward(self, x):
        x = self.m(x)
        bs, _, ny, nx = x.shape
        x = x.view(bs, self.na, self.no, ny, nx).permute(0, 1, 3, 4, 2).contiguous()
        yv, xv = torch.meshgrid(torch.arange(ny), torch.arange(nx), indexing='ij')
        grid = torch.stack((xv, yv), 2).view(1, 1, ny, nx, 2).float()
        y = x.sigmoid()
        xy = (y[..., 0:2] * 2. - 0.5 + grid) * self.stride  # xy
        wh = (y[..., 2:4] * 2) ** 2 * self.anchor_grid  # wh
        y = torch.cat((xy, wh, y[..., 4:]), -1)
        return y.view(bs, -1, self.no)
