# %% [case]
# id: scan-angle-lost-in-tensor
# source: discuss.pytorch.org thread 23261 "Gradient is lost when use torch.tensor([t1, t2])" (a vector built from cos of two parameters)
# family: silent
# fails: -
# culprit: 3:4
# saved: -
# needed: -
# effect: same
# observe: [angle.detach().clone(), shift.detach().clone(), angle.grad, errors]
# note: torch.tensor([[cos, -sin], [sin, cos]]) copies the values and drops their graph, so only the shift is fitted and the angle never gets a gradient. Fix: build the matrix with torch.stack.
# %%
import torch

torch.manual_seed(21)
true_angle = torch.tensor(0.6)
true_shift = torch.tensor([0.4, -0.3])
scan_a = torch.randn(60, 2)
c, s = torch.cos(true_angle), torch.sin(true_angle)
scan_b = torch.stack([c * scan_a[:, 0] - s * scan_a[:, 1],
                      s * scan_a[:, 0] + c * scan_a[:, 1]], dim=1) + true_shift
# %%
angle = torch.zeros((), requires_grad=True)
shift = torch.zeros(2, requires_grad=True)
opt = torch.optim.Adam([angle, shift], lr=0.05)
# %%
def rotation(theta):
    cos_t = torch.cos(theta)
    sin_t = torch.sin(theta)
    return torch.tensor([[cos_t, -sin_t], [sin_t, cos_t]])

def align(points):
    return points @ rotation(angle).T + shift
# %%
errors = []
for it in range(60):
    opt.zero_grad()
    residual = align(scan_a) - scan_b
    loss = residual.pow(2).mean()
    loss.backward()
    opt.step()
    errors.append(loss.item())
# %% [fixed 3]
def rotation(theta):
    cos_t = torch.cos(theta)
    sin_t = torch.sin(theta)
    return torch.stack([torch.stack([cos_t, -sin_t]), torch.stack([sin_t, cos_t])])

def align(points):
    return points @ rotation(angle).T + shift
