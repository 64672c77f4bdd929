# %% [case]
# id: l1-projection-writes-into-perturbation
# source: BorealisAI/advertorch#38 (change l1 projection to be not inplace)
# family: modified
# fails: 4
# culprit: 1:22
# saved: 3:3
# needed: 4:7
# effect: same
# observe: [losses['total'].detach()] + [p.grad.clone() for p in generator.parameters()]
# note: the projection writes the projected rows into a view of the perturbation that delta.pow(2) saved. Human fix (merged PR): the projection works on a copy, x = x.clone().
# %%
import torch

def _thresh_by_magnitude(theta, x):
    return torch.relu(torch.abs(x) - theta) * x.sign()

def batch_l1_proj_flat(x, z=1):
    """Projection on the L1 ball (Duchi et al. 2008), row by row."""
    v = torch.abs(x).sum(dim=1)
    # rows outside of the ball
    indexes_b = torch.nonzero(v > z).view(-1)
    x_b = x[indexes_b]
    if x_b.size(0) == 0:
        return x
    mu = x_b.abs().sort(1, descending=True)[0]
    vv = torch.arange(x_b.size(1)).float()
    st = (mu.cumsum(1) - z) / (vv + 1)
    u = (mu - st) > 0
    rho = (~u).cumsum(dim=1).eq(0).sum(1) - 1
    theta = st.gather(1, rho.unsqueeze(1))
    proj_x_b = _thresh_by_magnitude(theta, x_b)
    # gather all the projected batch
    x[indexes_b] = proj_x_b
    return x

def batch_l1_proj(x, eps):
    view = x.view(x.size(0), -1)
    return batch_l1_proj_flat(view, z=eps).view_as(x)
# %%
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(2)

class PerturbationGenerator(nn.Module):
    """image -> sparse perturbation of the same size"""
    def __init__(self, ch=3, width=6, scale=0.5):
        super().__init__()
        self.scale = scale
        self.net = nn.Sequential(
            nn.Conv2d(ch, width, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(width, ch, 3, padding=1), nn.Tanh())

    def forward(self, x):
        return self.net(x) * self.scale

victim = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 9, 5)).eval().requires_grad_(False)
# %%
def attack_losses(generator, x, y, eps, lam=0.05):
    delta = generator(x)
    energy = delta.pow(2).flatten(1).sum(1).mean()
    delta = batch_l1_proj(delta, eps)
    x_adv = (x + delta).clamp(0., 1.)
    fool = -F.cross_entropy(victim(x_adv), y)
    return dict(fool=fool, energy=energy, total=fool + lam * energy)
# %%
generator = PerturbationGenerator()
optimizer = torch.optim.SGD(generator.parameters(), lr=0.1)
x, y = torch.rand(4, 3, 8, 8), torch.tensor([0, 3, 1, 4])
for _ in range(2):
    optimizer.zero_grad()
    losses = attack_losses(generator, x, y, eps=6.)
    losses['total'].backward()
    optimizer.step()
print({k: round(v.item(), 4) for k, v in losses.items()})
# %% [fixed 1]
import torch

def _thresh_by_magnitude(theta, x):
    return torch.relu(torch.abs(x) - theta) * x.sign()

def batch_l1_proj_flat(x, z=1):
    """Projection on the L1 ball (Duchi et al. 2008), row by row."""
    v = torch.abs(x).sum(dim=1)
    # rows outside of the ball
    indexes_b = torch.nonzero(v > z).view(-1)
    x_b = x[indexes_b]
    if x_b.size(0) == 0:
        return x
    mu = x_b.abs().sort(1, descending=True)[0]
    vv = torch.arange(x_b.size(1)).float()
    st = (mu.cumsum(1) - z) / (vv + 1)
    u = (mu - st) > 0
    rho = (~u).cumsum(dim=1).eq(0).sum(1) - 1
    theta = st.gather(1, rho.unsqueeze(1))
    proj_x_b = _thresh_by_magnitude(theta, x_b)
    # gather all the projected batch
    x = x.clone()
    x[indexes_b] = proj_x_b
    return x

def batch_l1_proj(x, eps):
    view = x.view(x.size(0), -1)
    return batch_l1_proj_flat(view, z=eps).view_as(x)
