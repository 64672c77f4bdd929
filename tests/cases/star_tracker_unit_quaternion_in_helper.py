# %% [case]
# id: star-tracker-unit-quaternion-in-helper
# source: pypose/pypose#371 (quat2unit normalises the quaternion part of its argument in place)
# family: view_of_leaf
# fails: 3
# culprit: 2:10
# saved: -
# needed: -
# effect: same
# observe: [tracker.pose.detach().clone(), history]
# note: unit_pose() writes the normalised quaternion back into columns 3:7 of the tensor that it is given, and here that is the parameter itself. Fix: build the normalised pose out of place, torch.cat of the position and F.normalize of the quaternion.
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(371)
n_stars = 24
catalogue = F.normalize(torch.randn(n_stars, 3), dim=-1)
true_q = F.normalize(torch.tensor([0.9, 0.2, -0.3, 0.1]), dim=0)
# %%
def rotate(q, v):
    """Rotate rows of v by the quaternion q = (w, x, y, z)."""
    w, u = q[..., :1], q[..., 1:]
    t = 2 * torch.cross(u.expand_as(v), v, dim=-1)
    return v + w * t + torch.cross(u.expand_as(v), t, dim=-1)

def unit_pose(pose, eps=1e-12):
    """pose = (x, y, z, qw, qx, qy, qz); returns it with |q| = 1"""
    data = pose
    data[..., 3:7] = F.normalize(data[..., 3:7], p=2, dim=-1, eps=eps)
    return data

class StarTracker(nn.Module):
    def __init__(self):
        super().__init__()
        self.pose = nn.Parameter(torch.tensor([0.0, 0.0, 0.0, 1.2, 0.1, 0.0, 0.0]))

    def forward(self, stars):
        pose = unit_pose(self.pose)
        boresight = rotate(pose[3:7], stars)
        return boresight + pose[:3]

measured = rotate(true_q, catalogue) + 0.01 * torch.randn(n_stars, 3) + 0.05
# %%
tracker = StarTracker()
optimizer = torch.optim.Adam(tracker.parameters(), lr=0.05)
history = []
for it in range(15):
    optimizer.zero_grad()
    residual = tracker(catalogue) - measured
    loss = residual.square().sum(dim=-1).mean()
    loss.backward()
    optimizer.step()
    history.append(loss.item())
print(history[0], history[-1])
# %% [fixed 2]
def rotate(q, v):
    """Rotate rows of v by the quaternion q = (w, x, y, z)."""
    w, u = q[..., :1], q[..., 1:]
    t = 2 * torch.cross(u.expand_as(v), v, dim=-1)
    return v + w * t + torch.cross(u.expand_as(v), t, dim=-1)

def unit_pose(pose, eps=1e-12):
    """pose = (x, y, z, qw, qx, qy, qz); returns it with |q| = 1"""
    quat = F.normalize(pose[..., 3:7], p=2, dim=-1, eps=eps)
    return torch.cat([pose[..., :3], quat], dim=-1)

class StarTracker(nn.Module):
    def __init__(self):
        super().__init__()
        self.pose = nn.Parameter(torch.tensor([0.0, 0.0, 0.0, 1.2, 0.1, 0.0, 0.0]))

    def forward(self, stars):
        pose = unit_pose(self.pose)
        boresight = rotate(pose[3:7], stars)
        return boresight + pose[:3]

measured = rotate(true_q, catalogue) + 0.01 * torch.randn(n_stars, 3) + 0.05
