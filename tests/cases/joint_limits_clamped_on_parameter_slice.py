# %% [case]
# id: joint-limits-clamped-on-parameter-slice
# source: inverse kinematics by gradient descent, joint limits
# family: view_of_leaf
# fails: 3
# culprit: 2:2
# saved: -
# needed: 2:2
# effect: same
# observe: [theta.detach().clone()]
# note: theta[:, 0].clamp_ writes into a view of the leaf. Fix: under no_grad.
# %%
import torch, math
torch.manual_seed(0)
theta = (torch.rand(3, 2) * 2).requires_grad_()
goal = torch.tensor([0.5, 1.2])
opt = torch.optim.SGD([theta], lr=0.3)

def fk(q, l1=1., l2=0.7):
    a, b = q[:, 0], q[:, 0] + q[:, 1]
    return torch.stack([l1 * a.cos() + l2 * b.cos(), l1 * a.sin() + l2 * b.sin()], -1)
# %%
def enforce_limits(q):
    q[:, 0].clamp_(-math.pi / 2, math.pi / 2)
    q[:, 1].clamp_(0., 2.5)
# %%
for it in range(5):
    opt.zero_grad()
    dist = (fk(theta) - goal).norm(dim=-1).sum()
    dist.backward()
    opt.step()
    enforce_limits(theta)
theta
# %% [fixed 2]
def enforce_limits(q):
    with torch.no_grad():
        q[:, 0].clamp_(-math.pi / 2, math.pi / 2)
        q[:, 1].clamp_(0., 2.5)
