# %% [case]
# id: ngp-pose-picked-by-int
# source: kwea123/ngp_pl#100
# family: second_backward
# fails: 4
# culprit: -
# saved: 3:29 | 3:30
# needed: 4:9
# effect: same
# observe: [loss.detach(), system.poses, system.dR.detach().clone(), system.net[0].weight.detach().clone()]
# note: with an int index poses[...] is a view of the buffer, so the pose refinement is written into self.poses, which keeps the graph of the first step (and the correction piles up). With an index array it is a copy. Half precision keeps the matmul from failing first: it saves a cast copy. Fix in the issue: np.random.choice(n, 1) without [0] in the dataset.
# %%
import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset
np.random.seed(23)
torch.manual_seed(23)
# %%
class BaseDataset(Dataset):
    """rays of one random image per batch (same_image) or of all of them"""
    def __init__(self, n_images=3, wh=(4, 4), batch_size=6, ray_sampling_strategy='all_images'):
        self.batch_size, self.strategy = batch_size, ray_sampling_strategy
        xs, ys = np.meshgrid(np.linspace(-.5, .5, wh[0]), np.linspace(-.5, .5, wh[1]))
        self.directions = torch.tensor(np.stack([xs, ys, np.ones_like(xs)], -1).reshape(-1, 3)).float()
        self.poses = torch.cat([torch.eye(3).repeat(n_images, 1, 1), torch.randn(n_images, 3, 1)], -1)
        self.rays = torch.rand(n_images, wh[0] * wh[1], 3)

    def __len__(self):
        return 4

    def __getitem__(self, idx):
        if self.strategy == 'all_images':
            img_idxs = np.random.choice(len(self.poses), self.batch_size)
        else:
            img_idxs = np.random.choice(len(self.poses), 1)[0]
        pix_idxs = np.random.choice(len(self.directions), self.batch_size)
        return {'img_idxs': img_idxs, 'pix_idxs': pix_idxs, 'rgb': self.rays[img_idxs, pix_idxs]}
# %%
def axisangle_to_R(v):
    zero = torch.zeros_like(v[..., 0])
    skew = torch.stack([zero, -v[..., 2], v[..., 1], v[..., 2], zero, -v[..., 0],
                        -v[..., 1], v[..., 0], zero], -1).unflatten(-1, (3, 3))
    return torch.matrix_exp(skew)


def get_rays(directions, c2w):
    rays_d = (c2w[..., :3] @ directions[..., None])[..., 0]
    return c2w[..., 3].expand_as(rays_d), rays_d


class NeRFSystem(nn.Module):
    def __init__(self, dataset, optimize_ext=True):
        super().__init__()
        self.optimize_ext = optimize_ext
        self.net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3), nn.Sigmoid())
        self.register_buffer('poses', dataset.poses.clone())
        self.register_buffer('directions', dataset.directions)
        n = len(dataset.poses)
        self.dR, self.dT = nn.Parameter(torch.zeros(n, 3)), nn.Parameter(torch.zeros(n, 3))

    def forward(self, batch):
        poses = self.poses[batch['img_idxs']]
        directions = self.directions[batch['pix_idxs']]
        if self.optimize_ext:
            dR = axisangle_to_R(self.dR[batch['img_idxs']])
            with torch.autocast('cpu', dtype=torch.bfloat16):
                poses[..., :3] = (dR @ poses[..., :3]).float()
            poses[..., 3] += self.dT[batch['img_idxs']]
        rays_o, rays_d = get_rays(directions, poses)
        return self.net(torch.cat([rays_o, rays_d], -1))
# %%
dataset = BaseDataset(ray_sampling_strategy='same_image')
system = NeRFSystem(dataset)
opts = [torch.optim.Adam(system.net.parameters(), 1e-2), torch.optim.Adam([system.dR, system.dT], 1e-3)]
for step in range(len(dataset)):
    batch = dataset[step]
    loss = ((system(batch) - batch['rgb']) ** 2).mean()
    for opt in opts:
        opt.zero_grad()
    loss.backward()
    for opt in opts:
        opt.step()
    print(step, loss.item())
# %% [fixed 2]
class BaseDataset(Dataset):
    """rays of one random image per batch (same_image) or of all of them"""
    def __init__(self, n_images=3, wh=(4, 4), batch_size=6, ray_sampling_strategy='all_images'):
        self.batch_size, self.strategy = batch_size, ray_sampling_strategy
        xs, ys = np.meshgrid(np.linspace(-.5, .5, wh[0]), np.linspace(-.5, .5, wh[1]))
        self.directions = torch.tensor(np.stack([xs, ys, np.ones_like(xs)], -1).reshape(-1, 3)).float()
        self.poses = torch.cat([torch.eye(3).repeat(n_images, 1, 1), torch.randn(n_images, 3, 1)], -1)
        self.rays = torch.rand(n_images, wh[0] * wh[1], 3)

    def __len__(self):
        return 4

    def __getitem__(self, idx):
        if self.strategy == 'all_images':
            img_idxs = np.random.choice(len(self.poses), self.batch_size)
        else:
            img_idxs = np.random.choice(len(self.poses), 1)
        pix_idxs = np.random.choice(len(self.directions), self.batch_size)
        return {'img_idxs': img_idxs, 'pix_idxs': pix_idxs, 'rgb': self.rays[img_idxs, pix_idxs]}
