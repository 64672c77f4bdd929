# %% [case]
# id: rigid-warp-rotation-angle-plus-epsilon
# source: dogyoonlee/DP-NeRF#2
# family: modified
# fails: 4
# culprit: 2:17
# saved: 2:16
# needed: 4:10
# effect: same
# observe: [loss.detach()] + [p.grad.clone() for p in warp.parameters()]
# note: theta = norm(r); theta += 1e-10 overwrites the result the norm saved (LinalgVectorNormBackward0). Human fix (thread): theta = theta + 1e-10.
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(2)

def skew(w):
    zero = torch.zeros_like(w[..., 0])
    return torch.stack([zero, -w[..., 2], w[..., 1],
                        w[..., 2], zero, -w[..., 0],
                        -w[..., 1], w[..., 0], zero], -1).reshape(*w.shape[:-1], 3, 3)

def exp_so3(w, theta):
    W = skew(w)
    t = theta[..., None, None]
    return torch.eye(3) + torch.sin(t) * W + (1. - torch.cos(t)) * W @ W
# %%
class RigidWarp(nn.Module):
    '''blur kernel of one view: num_motion rigid motions of the camera (SE(3) field)'''
    def __init__(self, num_views, num_motion=3, view_dim=8, width=16):
        super().__init__()
        self.num_motion = num_motion
        self.view_embed = nn.Embedding(num_views, view_dim)
        self.trunk = nn.Sequential(nn.Linear(view_dim, width), nn.ReLU(inplace=True))
        self.r_branch = nn.Linear(width, 3 * num_motion)
        self.v_branch = nn.Linear(width, 3 * num_motion)

    def forward(self, rays_o, rays_d, view_idx):
        h = self.trunk(self.view_embed(view_idx))
        r = self.r_branch(h).reshape(-1, self.num_motion, 3)
        v = self.v_branch(h).reshape(-1, self.num_motion, 3) * 0.1
        # screw axis
        theta = torch.linalg.norm(r, dim=-1)
        theta += 1.0e-10
        w = r / theta[..., None]
        R = exp_so3(w, theta)
        new_o = (R @ rays_o[:, None, :, None]).squeeze(-1) + v
        new_d = (R @ rays_d[:, None, :, None]).squeeze(-1)
        return new_o, new_d
# %%
class TinyNeRF(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 4))
    def forward(self, o, d, n_samples=6):
        z = torch.linspace(0.5, 2., n_samples)
        raw = self.mlp(o[..., None, :] + z[:, None] * d[..., None, :])
        alpha = 1. - torch.exp(-F.softplus(raw[..., 3]) * (z[1] - z[0]))
        T = torch.cumprod(torch.cat([torch.ones_like(alpha[..., :1]), 1. - alpha + 1e-10], -1), -1)[..., :-1]
        return ((T * alpha)[..., None] * torch.sigmoid(raw[..., :3])).sum(-2)

warp, nerf = RigidWarp(num_views=4), TinyNeRF()
optimizer = torch.optim.Adam(list(nerf.parameters()) + list(warp.parameters()), lr=5e-4)
# %%
N_rand = 12
rays_o, rays_d = torch.randn(N_rand, 3) * 0.1, F.normalize(torch.randn(N_rand, 3), dim=-1)
target_s = torch.rand(N_rand, 3)
view_idx = torch.randint(0, 4, (N_rand,))
for i in range(2):
    o, d = warp(rays_o, rays_d, view_idx)
    rgb = nerf(o, d).mean(1)            # average over the motions = blurred colour
    loss = F.mse_loss(rgb, target_s)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(i, -10. * torch.log10(loss.detach()))
# %% [fixed 2]
class RigidWarp(nn.Module):
    '''blur kernel of one view: num_motion rigid motions of the camera (SE(3) field)'''
    def __init__(self, num_views, num_motion=3, view_dim=8, width=16):
        super().__init__()
        self.num_motion = num_motion
        self.view_embed = nn.Embedding(num_views, view_dim)
        self.trunk = nn.Sequential(nn.Linear(view_dim, width), nn.ReLU(inplace=True))
        self.r_branch = nn.Linear(width, 3 * num_motion)
        self.v_branch = nn.Linear(width, 3 * num_motion)

    def forward(self, rays_o, rays_d, view_idx):
        h = self.trunk(self.view_embed(view_idx))
        r = self.r_branch(h).reshape(-1, self.num_motion, 3)
        v = self.v_branch(h).reshape(-1, self.num_motion, 3) * 0.1
        # screw axis
        theta = torch.linalg.norm(r, dim=-1)
        theta = theta + 1.0e-10
        w = r / theta[..., None]
        R = exp_so3(w, theta)
        new_o = (R @ rays_o[:, None, :, None]).squeeze(-1) + v
        new_d = (R @ rays_d[:, None, :, None]).squeeze(-1)
        return new_o, new_d
