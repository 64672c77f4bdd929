# %% [case]
# id: masked-pretraining-writes-into-no-grad-crop
# source: ccarliu/m3ae#15
# family: no_grad_view
# fails: 5
# culprit: 2:8 | 3:19
# saved: -
# needed: 3:19
# effect: same
# observe: [loss.detach(), model.limage.grad.clone(), model.decoder[0].weight.grad.clone()]
# note: the crop is a view of the scan, taken in a @torch.no_grad() helper; the model pastes its learned image into the masked part by item assignment, with grad enabled. Fix: compose out of place (a clone of the crop would do as well); it also stops the scan itself from being overwritten.
# %%
import torch
from torch import nn
torch.manual_seed(15)
# %%
@torch.no_grad()
def random_crop(scan, size, generator=None):
    """returns the crop and its (start, stop) along every axis"""
    where = []
    crop = scan
    for dim, s in enumerate(size, start=2):
        a = int(torch.randint(0, scan.size(dim) - s + 1, (1,), generator=generator))
        crop = crop.narrow(dim, a, s)
        where.append((a, a + s))
    return crop, where


@torch.no_grad()
def block_mask(shape, ratio, patch=2):
    m = (torch.rand(shape[0], 1, *(s // patch for s in shape[2:])) > ratio).float()
    for d in range(2, len(shape)):
        m = m.repeat_interleave(patch, dim=d)
    return m
# %%
class MAENet(nn.Module):
    """missing modalities / masked blocks are filled from a learned full-size image"""

    def __init__(self, channels=2, full=(6, 6, 6), width=4):
        super().__init__()
        self.limage = nn.Parameter(torch.randn(1, channels, *full) * 0.1)
        self.encoder = nn.Conv3d(channels, width, 3, padding=1)
        self.decoder = nn.Sequential(nn.Conv3d(width, width, 1), nn.InstanceNorm3d(width), nn.LeakyReLU(0.01, inplace=True),
                                     nn.Conv3d(width, channels, 1))

    def fill(self, where):
        (d0, d1), (h0, h1), (w0, w1) = where
        return self.limage[:, :, d0:d1, h0:h1, w0:w1]

    def forward(self, x, where, mask_ratio=0.5, do_mask=True):
        if do_mask:
            mask = block_mask(x.shape, mask_ratio)
            for l in range(x.size(0)):
                x[l] = x[l] * mask[l] + (self.fill(where) * (1 - mask[l]))[0] # not detach here
        return self.decoder(self.encoder(x))
# %%
scans = torch.randn(2, 2, 6, 6, 6)
model = MAENet()
opt = torch.optim.AdamW([{"params": [model.limage], "weight_decay": 0.},
                         {"params": [p for n, p in model.named_parameters() if n != "limage"]}], lr=3e-4)
# %%
inputs, location = random_crop(scans, (4, 4, 4))
target = inputs.clone()
rec = model(inputs, location)
loss = (rec - target).pow(2).mean()
opt.zero_grad(); loss.backward(); opt.step()
print("rec loss", loss.item())
# %% [fixed 3]
class MAENet(nn.Module):
    """missing modalities / masked blocks are filled from a learned full-size image"""

    def __init__(self, channels=2, full=(6, 6, 6), width=4):
        super().__init__()
        self.limage = nn.Parameter(torch.randn(1, channels, *full) * 0.1)
        self.encoder = nn.Conv3d(channels, width, 3, padding=1)
        self.decoder = nn.Sequential(nn.Conv3d(width, width, 1), nn.InstanceNorm3d(width), nn.LeakyReLU(0.01, inplace=True),
                                     nn.Conv3d(width, channels, 1))

    def fill(self, where):
        (d0, d1), (h0, h1), (w0, w1) = where
        return self.limage[:, :, d0:d1, h0:h1, w0:w1]

    def forward(self, x, where, mask_ratio=0.5, do_mask=True):
        if do_mask:
            mask = block_mask(x.shape, mask_ratio)
            x = x * mask + self.fill(where) * (1 - mask)   # not detach here
        return self.decoder(self.encoder(x))
