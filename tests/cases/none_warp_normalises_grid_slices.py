# %% [case]
# id: none-warp-normalises-grid-slices
# source: optical flow warping layer that normalises the grid in place
# family: none
# fails: -
# culprit: -
# saved: -
# needed: -
# effect: same
# observe: [flow.grad]
# note: scaling slices of a fresh grid by constants saves nothing: healthy.
# %%
import torch
import torch.nn.functional as F

def warp(x, flo):
    """warp an image back to im1, according to the flow"""
    B, C, H, W = x.size()
    yy, xx = torch.meshgrid(torch.arange(H), torch.arange(W), indexing='ij')
    grid = torch.stack((xx, yy), 0)[None].expand(B, -1, -1, -1).float()
    vgrid = grid + flo
    # scale grid to [-1, 1]
    vgrid[:, 0] = 2.0 * vgrid[:, 0] / max(W - 1, 1) - 1.0
    vgrid[:, 1] = 2.0 * vgrid[:, 1] / max(H - 1, 1) - 1.0
    out = F.grid_sample(x, vgrid.permute(0, 2, 3, 1), align_corners=True)
    mask = F.grid_sample(torch.ones_like(x), vgrid.permute(0, 2, 3, 1), align_corners=True).detach()
    mask[mask < 0.9999] = 0
    mask[mask > 0] = 1
    return out * mask
# %%
torch.manual_seed(0)
im1, im2 = torch.rand(1, 2, 6, 6), torch.rand(1, 2, 6, 6)
flow = torch.zeros(1, 2, 6, 6, requires_grad=True)
opt = torch.optim.SGD([flow], lr=10.)
# %%
for _ in range(3):
    loss = (warp(im2, flow + 0.1) - im1).abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
loss.item()
