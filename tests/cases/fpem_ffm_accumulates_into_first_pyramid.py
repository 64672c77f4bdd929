# %% [case]
# id: fpem-ffm-accumulates-into-first-pyramid
# source: open-mmlab/mmocr#884 (also #878, #648)
# family: modified
# fails: 4
# culprit: 2:19 | 2:20 | 2:21
# saved: 1:13
# needed: 4:8
# effect: same
# observe: [loss.detach()] + [p.grad.clone() for p in det.neck.parameters()]
# note: c2_ffm, ... are the very outputs of the first FPEM (saved by its ReLUs and by the convolutions of the second FPEM); += on them from the second FPEM on. Human fix (PR): c2_ffm = c2_ffm + c2 etc.
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(884)

class SeparableConv2d(nn.Module):
    def __init__(self, ch, stride=1):
        super().__init__()
        self.depthwise_conv = nn.Conv2d(ch, ch, 3, padding=1, stride=stride, groups=ch)
        self.pointwise_conv = nn.Conv2d(ch, ch, 1)
        self.relu = nn.ReLU()
    def forward(self, x):
        return self.relu(self.pointwise_conv(self.depthwise_conv(x)))

class FPEM(nn.Module):
    '''FPN-like feature pyramid enhancement module'''
    def __init__(self, ch):
        super().__init__()
        self.up_add1, self.up_add2 = SeparableConv2d(ch), SeparableConv2d(ch)
        self.down_add1, self.down_add2 = SeparableConv2d(ch, stride=2), SeparableConv2d(ch, stride=2)
    def forward(self, c2, c3, c4):
        # upsample
        c3 = self.up_add1(self._upsample_add(c4, c3))
        c2 = self.up_add2(self._upsample_add(c3, c2))
        # downsample
        c3 = self.down_add1(self._upsample_add(c3, c2))
        c4 = self.down_add2(self._upsample_add(c4, c3))
        return c2, c3, c4
    @staticmethod
    def _upsample_add(x, y):
        return F.interpolate(x, size=y.size()[2:]) + y
# %%
class FPEM_FFM(nn.Module):
    def __init__(self, in_channels, conv_out=6, fpem_repeat=2):
        super().__init__()
        self.reduce = nn.ModuleList(nn.Sequential(nn.Conv2d(c, conv_out, 1), nn.ReLU()) for c in in_channels)
        self.fpems = nn.ModuleList(FPEM(conv_out) for _ in range(fpem_repeat))

    def forward(self, x):
        # reduce channel
        c2, c3, c4 = (conv(f) for conv, f in zip(self.reduce, x))

        # FPEM
        for i, fpem in enumerate(self.fpems):
            c2, c3, c4 = fpem(c2, c3, c4)
            if i == 0:
                c2_ffm = c2
                c3_ffm = c3
                c4_ffm = c4
            else:
                c2_ffm += c2
                c3_ffm += c3
                c4_ffm += c4

        # FFM
        c4 = F.interpolate(c4_ffm, c2_ffm.size()[-2:])
        c3 = F.interpolate(c3_ffm, c2_ffm.size()[-2:])
        return torch.cat([c2_ffm, c3, c4], dim=1)
# %%
class PANet(nn.Module):
    def __init__(self, chans=(3, 5, 7)):
        super().__init__()
        self.stem = nn.ModuleList(nn.Conv2d(3, c, 3, stride=s, padding=1) for c, s in zip(chans, (1, 2, 4)))
        self.neck = FPEM_FFM(chans)
        self.bbox_head = nn.Conv2d(18, 2, 1)       # text region, kernel
    def forward(self, img):
        return self.bbox_head(self.neck([m(img) for m in self.stem]))

def dice_loss(pred, gt, eps=1e-3):
    pred = torch.sigmoid(pred)
    return 1 - (2 * (pred * gt).sum()) / ((pred ** 2).sum() + (gt ** 2).sum() + eps)
# %%
det = PANet()
optim = torch.optim.SGD(det.parameters(), lr=0.1)
batch = dict(img=torch.rand(1, 3, 16, 16), gt_kernels=(torch.rand(1, 2, 16, 16) > 0.7).float())
preds = det(batch['img'])
losses = dict(loss_text=dice_loss(preds[:, 0], batch['gt_kernels'][:, 0]),
              loss_kernel=0.5 * dice_loss(preds[:, 1], batch['gt_kernels'][:, 1]))
loss = sum(losses.values())
loss.backward()
optim.step()
# %% [fixed 2]
class FPEM_FFM(nn.Module):
    def __init__(self, in_channels, conv_out=6, fpem_repeat=2):
        super().__init__()
        self.reduce = nn.ModuleList(nn.Sequential(nn.Conv2d(c, conv_out, 1), nn.ReLU()) for c in in_channels)
        self.fpems = nn.ModuleList(FPEM(conv_out) for _ in range(fpem_repeat))

    def forward(self, x):
        # reduce channel
        c2, c3, c4 = (conv(f) for conv, f in zip(self.reduce, x))

        # FPEM
        for i, fpem in enumerate(self.fpems):
            c2, c3, c4 = fpem(c2, c3, c4)
            if i == 0:
                c2_ffm = c2
                c3_ffm = c3
                c4_ffm = c4
            else:
                c2_ffm = c2_ffm + c2
                c3_ffm = c3_ffm + c3
                c4_ffm = c4_ffm + c4

        # FFM
        c4 = F.interpolate(c4_ffm, c2_ffm.size()[-2:])
        c3 = F.interpolate(c3_ffm, c2_ffm.size()[-2:])
        return torch.cat([c2_ffm, c3, c4], dim=1)
