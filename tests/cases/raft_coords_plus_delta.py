# %% [case]
# id: raft-coords-plus-delta
# source: recurrent optical flow network, lookup coordinates refined in place
# family: modified
# fails: 4
# culprit: 3:8
# saved: 3:5
# needed: 4:4
# effect: same
# observe: [p.grad.clone() for p in update_block.parameters()]
# note: grid_sample saved the coordinates, coords1 += delta_flow changes them. Fix: coords1 = coords1 + delta_flow.
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F

def coords_grid(b, h, w):
    ys, xs = torch.meshgrid(torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing='ij')
    return torch.stack([xs, ys], -1).repeat(b, 1, 1, 1)

class UpdateBlock(nn.Module):
    def __init__(self, c=3):
        super().__init__()
        self.conv = nn.Conv2d(2 * c + 2, 8, 3, padding=1)
        self.flow = nn.Conv2d(8, 2, 3, padding=1)
    def forward(self, f1, corr, flow):
        return 0.1 * torch.tanh(self.flow(F.relu(self.conv(torch.cat([f1, corr, flow], 1)))))
# %%
torch.manual_seed(0)
update_block = UpdateBlock()
fmap1, fmap2 = torch.randn(2, 3, 5, 5), torch.randn(2, 3, 5, 5)
gt = torch.zeros(2, 5, 5, 2)
# %%
def raft(fmap1, fmap2, iters=3):
    coords0, coords1 = coords_grid(2, 5, 5), coords_grid(2, 5, 5)
    preds = []
    for itr in range(iters):
        corr = F.grid_sample(fmap2, coords1, align_corners=True)     # index the volume
        flow = (coords1 - coords0).permute(0, 3, 1, 2)
        delta = update_block(fmap1, corr, flow)
        coords1 += delta.permute(0, 2, 3, 1)
        preds.append(coords1 - coords0)
    return preds
# %%
gamma = 0.8
preds = raft(fmap1, fmap2)
loss = sum(gamma ** (len(preds) - i - 1) * (p - gt).abs().mean() for i, p in enumerate(preds))
loss.backward()
# %% [fixed 3]
def raft(fmap1, fmap2, iters=3):
    coords0, coords1 = coords_grid(2, 5, 5), coords_grid(2, 5, 5)
    preds = []
    for itr in range(iters):
        corr = F.grid_sample(fmap2, coords1, align_corners=True)     # index the volume
        flow = (coords1 - coords0).permute(0, 3, 1, 2)
        delta = update_block(fmap1, corr, flow)
        coords1 = coords1 + delta.permute(0, 2, 3, 1)
        preds.append(coords1 - coords0)
    return preds
