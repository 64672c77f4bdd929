# %% [case]
# id: holes-filled-under-no-grad
# source: https://github.com/naoto0804/pytorch-inpainting-with-partial-conv/issues/6
# family: silent
# fails: -
# culprit: 2:20
# saved: -
# needed: 4:8
# effect: same
# observe: [p.grad.clone() for p in net.parameters() if p.requires_grad]
# note: The holes of the output are zeroed under no_grad, so the gradient of the zeroed places still goes to the bias. Nothing is raised, since the addition before it saves nothing. Fix: a tracked masked_fill. The thread gives the layer and its masked_fill_; the no_grad slip is our construction.
# %%
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(6)
# %%
class PartialConv(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, padding=0):
        super().__init__()
        self.feature_conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=padding, bias=False)
        self.bias = nn.Parameter(torch.full((out_channels, 1, 1), 0.1))
        self.mask_conv = nn.Conv2d(1, 1, kernel_size, padding=padding, bias=False)
        nn.init.constant_(self.mask_conv.weight, 1.0)
        self.mask_conv.weight.requires_grad_(False)

    def forward(self, x, mask):
        output = self.feature_conv(x * mask)
        with torch.no_grad():
            mask_sum = self.mask_conv(mask)
            holes = mask_sum == 0
            mask_sum.masked_fill_(holes, 1.0)
            new_mask = (~holes).float()
        output = output / mask_sum + self.bias
        with torch.no_grad():
            # nothing was seen here
            output.masked_fill_(holes, 0.0)
        return output, new_mask
# %%
class PConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec = PartialConv(1, 3, 3, padding=1), PartialConv(4, 1, 3, padding=1)
    def forward(self, img, mask):
        h, m = self.enc(img, mask)
        h = F.leaky_relu(h, 0.2)
        out, m = self.dec(torch.cat([h, img * mask], dim=1), torch.maximum(m, mask))
        return out, m
# %%
net = PConvNet()
img = torch.rand(2, 1, 8, 8)
mask = torch.ones(2, 1, 8, 8)
mask[0, :, 1:8, 1:8] = 0
mask[1, :, 0:6, 2:8] = 0
out, m = net(img, mask)
loss = (out - img).abs().mean() + 6 * ((1 - mask) * (out - img)).abs().mean()
loss.backward()
print(loss.item(), {n: p.grad.norm().item() for n, p in net.named_parameters() if p.grad is not None})
# %% [fixed 2]
class PartialConv(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, padding=0):
        super().__init__()
        self.feature_conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=padding, bias=False)
        self.bias = nn.Parameter(torch.full((out_channels, 1, 1), 0.1))
        self.mask_conv = nn.Conv2d(1, 1, kernel_size, padding=padding, bias=False)
        nn.init.constant_(self.mask_conv.weight, 1.0)
        self.mask_conv.weight.requires_grad_(False)

    def forward(self, x, mask):
        output = self.feature_conv(x * mask)
        with torch.no_grad():
            mask_sum = self.mask_conv(mask)
            holes = mask_sum == 0
            mask_sum.masked_fill_(holes, 1.0)
            new_mask = (~holes).float()
        output = output / mask_sum + self.bias
        # nothing was seen here
        output = output.masked_fill(holes, 0.0)
        return output, new_mask
