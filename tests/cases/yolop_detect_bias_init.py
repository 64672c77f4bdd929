# %% [case]
# id: yolop-detect-bias-init
# source: hustvl/YOLOP#17 (also ultralytics/yolov5#1552, hitfeelee/Yolo3D#7)
# family: view_of_leaf
# fails: 3
# culprit: 2:50
# saved: -
# needed: -
# effect: same
# observe: [mi.bias.detach().clone() for mi in model.model[model.detector_index].m] + [loss.detach()]
# note: _initialize_biases adds the prior log-odds to b = mi.bias.view(na, -1), a view of a parameter. Fix: the two additions under torch.no_grad() (as given in DataXujing/YOLO-v5#23).
# %%
import math
import torch
import torch.nn as nn

YOLOP = [  # [ Detect, block list ]
    [3],
    [-1, 'Conv', [3, 8, 3, 2]],
    [-1, 'Conv', [8, 8, 3, 2]],
    [-1, 'Conv', [8, 16, 3, 2]],
    [[1, 2], 'Detect', [1, [[4, 5, 8, 10], [16, 30, 33, 23]], [8, 16]]],
]
# %%
class Conv(nn.Module):
    def __init__(self, c1, c2, k, s):
        super().__init__()
        self.conv, self.act = nn.Conv2d(c1, c2, k, s, k // 2), nn.Hardswish()
    def forward(self, x):
        return self.act(self.conv(x))

class Detect(nn.Module):
    stride = None
    def __init__(self, nc=1, anchors=(), ch=()):
        super().__init__()
        self.nc, self.no = nc, nc + 5
        self.na = len(anchors[0]) // 2
        self.m = nn.ModuleList(nn.Conv2d(x, self.no * self.na, 1) for x in ch)
    def forward(self, x):
        out = []
        for i, xi in enumerate(x):
            bs, _, ny, nx = xi.shape
            out.append(self.m[i](xi).view(bs, self.na, self.no, ny, nx).permute(0, 1, 3, 4, 2).contiguous())
        return out

class MCnet(nn.Module):
    def __init__(self, block_cfg):
        super(MCnet, self).__init__()
        self.detector_index = block_cfg[0][0]
        layers = []
        for i, (from_, block, args) in enumerate(block_cfg[1:]):
            layers.append({'Conv': Conv, 'Detect': Detect}[block](*args))
            layers[-1].index, layers[-1].from_ = i, from_
        self.model = nn.Sequential(*layers)
        Detector = self.model[self.detector_index]
        with torch.no_grad():
            Detector.stride = torch.tensor([64 / o.shape[-2] for o in self.forward(torch.zeros(1, 3, 64, 64))])
        self._initialize_biases()

    def forward(self, x):
        cache = []
        for block in self.model:
            if block.from_ != -1:
                x = [cache[j] for j in block.from_]
            x = block(x)
            cache.append(x)
        return x

    def _initialize_biases(self, cf=None):  # initialize biases into Detect(), cf is class frequency
        # https://arxiv.org/abs/1708.02002 section 3.3
        m = self.model[self.detector_index]
        for mi, s in zip(m.m, m.stride):
            b = mi.bias.view(m.na, -1)  # conv.bias(18) to (2,6)
            b[:, 4] += math.log(8 / (640 / s) ** 2)  # obj (8 objects per 640 image)
            b[:, 5:] += math.log(0.6 / (m.nc - 0.99)) if cf is None else torch.log(cf / cf.sum())  # cls
            mi.bias = torch.nn.Parameter(b.view(-1), requires_grad=True)
# %%
torch.manual_seed(0)
model = MCnet(YOLOP)
print('load finished', model.model[model.detector_index].stride)
# %%
opt = torch.optim.Adam(filter(lambda p: p.requires_grad, model.parameters()), lr=1e-3)
img = torch.rand(2, 3, 64, 64)
loss = sum(nn.functional.binary_cross_entropy_with_logits(o[..., 4], torch.zeros_like(o[..., 4])) for o in model(img))
loss.backward()
opt.step()
# %% [fixed 2]
class Conv(nn.Module):
    def __init__(self, c1, c2, k, s):
        super().__init__()
        self.conv, self.act = nn.Conv2d(c1, c2, k, s, k // 2), nn.Hardswish()
    def forward(self, x):
        return self.act(self.conv(x))

class Detect(nn.Module):
    stride = None
    def __init__(self, nc=1, anchors=(), ch=()):
        super().__init__()
        self.nc, self.no = nc, nc + 5
        self.na = len(anchors[0]) // 2
        self.m = nn.ModuleList(nn.Conv2d(x, self.no * self.na, 1) for x in ch)
    def forward(self, x):
        out = []
        for i, xi in enumerate(x):
            bs, _, ny, nx = xi.shape
            out.append(self.m[i](xi).view(bs, self.na, self.no, ny, nx).permute(0, 1, 3, 4, 2).contiguous())
        return out

class MCnet(nn.Module):
    def __init__(self, block_cfg):
        super(MCnet, self).__init__()
        self.detector_index = block_cfg[0][0]
        layers = []
        for i, (from_, block, args) in enumerate(block_cfg[1:]):
            layers.append({'Conv': Conv, 'Detect': Detect}[block](*args))
            layers[-1].index, layers[-1].from_ = i, from_
        self.model = nn.Sequential(*layers)
        Detector = self.model[self.detector_index]
        with torch.no_grad():
            Detector.stride = torch.tensor([64 / o.shape[-2] for o in self.forward(torch.zeros(1, 3, 64, 64))])
        self._initialize_biases()

    def forward(self, x):
        cache = []
        for block in self.model:
            if block.from_ != -1:
                x = [cache[j] for j in block.from_]
            x = block(x)
            cache.append(x)
        return x

    def _initialize_biases(self, cf=None):  # initialize biases into Detect(), cf is class frequency
        # https://arxiv.org/abs/1708.02002 section 3.3
        m = self.model[self.detector_index]
        for mi, s in zip(m.m, m.stride):
            b = mi.bias.view(m.na, -1)  # conv.bias(18) to (2,6)
            with torch.no_grad():
                b[:, 4] += math.log(8 / (640 / s) ** 2)  # obj (8 objects per 640 image)
                b[:, 5:] += math.log(0.6 / (m.nc - 0.99)) if cf is None else torch.log(cf / cf.sum())  # cls
            mi.bias = torch.nn.Parameter(b.view(-1), requires_grad=True)
