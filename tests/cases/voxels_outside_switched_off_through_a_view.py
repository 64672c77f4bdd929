# %% [case]
# id: voxels-outside-switched-off-through-a-view
# source: density grids of radiance fields that set what lies outside a hull
# family: view_of_leaf
# fails: 3
# culprit: 2:9
# saved: -
# needed: -
# effect: same
# observe: [fog.cells.grad.clone(), fog.cells.detach().clone()]
# note: a forward writes into a view of its parameter and goes on with that view. Fix: masked_fill, out of place.
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(8)
line = torch.linspace(-1, 1, 5)
seen = line[:, None] ** 2 + line ** 2 < 1
# %%
class Fog(nn.Module):
    def __init__(self, size, seen):
        super().__init__()
        self.cells = nn.Parameter(0.2 * torch.randn(2, size, size))
        self.register_buffer("seen", seen)

    def layers(self):
        field = self.cells.permute(1, 2, 0)
        field[~self.seen] = -6.0
        return F.softplus(field[..., 0]), torch.sigmoid(field[..., 1])
# %%
fog = Fog(5, seen)
opt = torch.optim.SGD(fog.parameters(), lr=0.1)
for _ in range(3):
    density, shade = fog.layers()
    opt.zero_grad()
    ((density * shade).sum(0) - line).square().mean().backward()
    opt.step()
# %% [fixed 2]
class Fog(nn.Module):
    def __init__(self, size, seen):
        super().__init__()
        self.cells = nn.Parameter(0.2 * torch.randn(2, size, size))
        self.register_buffer("seen", seen)

    def layers(self):
        field = self.cells.permute(1, 2, 0)
        field = field.masked_fill(~self.seen[..., None], -6.0)
        return F.softplus(field[..., 0]), torch.sigmoid(field[..., 1])
