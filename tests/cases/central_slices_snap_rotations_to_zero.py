# %% [case]
# id: central-slices-snap-rotations-to-zero
# source: https://github.com/teamtomo/teamtomo/pull/119
# family: leaf
# fails: 4
# culprit: 2:8
# saved: -
# needed: 2:8
# effect: same
# observe: [loss.detach(), poses.grad.clone()]
# note: .to(torch.float32) returns the same tensor for a float32 input, so snapping near-zero elements to zero writes into the caller's rotation matrices: an error as soon as they are optimised. Fix: out of place. (Real space instead of Fourier space here.)
# %%
import math
import torch
import torch.nn.functional as F

def rotation_z(degrees):
    a = torch.deg2rad(torch.as_tensor(degrees, dtype=torch.float32))
    c, s, o, l = a.cos(), a.sin(), torch.zeros_like(a), torch.ones_like(a)
    return torch.stack([torch.stack([c, -s, o], -1), torch.stack([s, c, o], -1), torch.stack([o, o, l], -1)], -2)

def central_slice_grid(n):
    line = torch.linspace(-1, 1, n)
    y, x = torch.meshgrid(line, line, indexing='ij')
    return torch.stack([x, y, torch.zeros_like(x)], dim=-1)   # xyz
# %%
def extract_central_slices(volume, rotation_matrices, rot_tolerance=1e-5):
    """volume (d, h, w), rotation_matrices (b, 3, 3) rotate xyz coordinates"""
    rotation_matrices = rotation_matrices.to(torch.float32)

    # 90 degree rotations must hit the grid exactly
    if rot_tolerance is not None:
        near_zero_elements = torch.abs(rotation_matrices) < rot_tolerance
        rotation_matrices[near_zero_elements] = 0.0

    grid = central_slice_grid(volume.shape[-1])
    grid = torch.einsum('bij,hwj->bhwi', rotation_matrices, grid)
    b = rotation_matrices.shape[0]
    slices = F.grid_sample(volume.expand(b, 1, *volume.shape), grid[:, None], align_corners=True)
    return slices[:, 0, 0]

def project_multichannel(volumes, rotation_matrices):
    return torch.stack([extract_central_slices(v, rotation_matrices) for v in volumes], dim=1)
# %%
torch.manual_seed(119)
n = 8
volumes = torch.zeros(2, n, n, n)
volumes[0, 2:5, 1:4, 3:6] = 1.
volumes[1, 3:6, 3:7, 2:4] = 1.
volumes = F.avg_pool3d(volumes, 3, stride=1, padding=1)
true_poses = rotation_z([10., 100., -35.])
with torch.no_grad():
    images = project_multichannel(volumes, true_poses) + 0.01 * torch.randn(3, 2, n, n)
# %%
# refine the poses, starting from the nominal tilt angles
poses = torch.nn.Parameter(rotation_z([0., 90., -30.]))
opt = torch.optim.Adam([poses], lr=1e-2)
for i in range(3):
    opt.zero_grad()
    loss = (project_multichannel(volumes, poses) - images).square().mean()
    loss.backward()
    opt.step()
    print(i, loss.item())
# %% [fixed 2]
def extract_central_slices(volume, rotation_matrices, rot_tolerance=1e-5):
    """volume (d, h, w), rotation_matrices (b, 3, 3) rotate xyz coordinates"""
    rotation_matrices = rotation_matrices.to(torch.float32)

    # 90 degree rotations must hit the grid exactly
    if rot_tolerance is not None:
        near_zero_elements = torch.abs(rotation_matrices) < rot_tolerance
        rotation_matrices = rotation_matrices.masked_fill(near_zero_elements, 0.0)

    grid = central_slice_grid(volume.shape[-1])
    grid = torch.einsum('bij,hwj->bhwi', rotation_matrices, grid)
    b = rotation_matrices.shape[0]
    slices = F.grid_sample(volume.expand(b, 1, *volume.shape), grid[:, None], align_corners=True)
    return slices[:, 0, 0]

def project_multichannel(volumes, rotation_matrices):
    return torch.stack([extract_central_slices(v, rotation_matrices) for v in volumes], dim=1)
