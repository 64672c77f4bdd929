# %% [case]
# id: kalman-filter-module-copies-covariance
# source: differentiable Kalman filter with state and covariance kept as buffers
# family: modified
# fails: 3
# culprit: 1:23
# saved: 1:23
# needed: 3:5
# effect: same
# observe: [kf.log_q.grad.clone(), kf.log_r.grad.clone()]
# note: P and x are buffers written with copy_ in predict() and update(), earlier steps saved them. Fix: rebind, self.P = ...
# %%
import torch
from torch import nn

class DiffKF(nn.Module):
    def __init__(self, dt=0.1):
        super().__init__()
        self.register_buffer('F', torch.tensor([[1., dt], [0., 1.]]))
        self.register_buffer('H', torch.tensor([[1., 0.]]))
        self.register_buffer('x', torch.zeros(2, 1))
        self.register_buffer('P', torch.eye(2))
        self.log_q = nn.Parameter(torch.tensor([-2., -2.]))
        self.log_r = nn.Parameter(torch.tensor([-1.]))

    def predict(self):
        self.x.copy_(self.F @ self.x)
        self.P.copy_(self.F @ self.P @ self.F.T + torch.diag(self.log_q.exp()))

    def update(self, z):
        S = self.H @ self.P @ self.H.T + self.log_r.exp()
        K = self.P @ self.H.T / S
        innov = z - self.H @ self.x
        self.x.copy_(self.x + K @ innov)
        self.P.copy_((torch.eye(2) - K @ self.H) @ self.P)
        return 0.5 * (innov ** 2 / S + S.log()).sum()
# %%
torch.manual_seed(0)
kf = DiffKF()
zs = torch.cumsum(torch.randn(4) * 0.1, 0)
# %%
nll = 0.
for z in zs:
    kf.predict()
    nll = nll + kf.update(z)
nll.backward()
# %% [fixed 1]
import torch
from torch import nn

class DiffKF(nn.Module):
    def __init__(self, dt=0.1):
        super().__init__()
        self.register_buffer('F', torch.tensor([[1., dt], [0., 1.]]))
        self.register_buffer('H', torch.tensor([[1., 0.]]))
        self.register_buffer('x', torch.zeros(2, 1))
        self.register_buffer('P', torch.eye(2))
        self.log_q = nn.Parameter(torch.tensor([-2., -2.]))
        self.log_r = nn.Parameter(torch.tensor([-1.]))

    def predict(self):
        self.x = self.F @ self.x
        self.P = self.F @ self.P @ self.F.T + torch.diag(self.log_q.exp())

    def update(self, z):
        S = self.H @ self.P @ self.H.T + self.log_r.exp()
        K = self.P @ self.H.T / S
        innov = z - self.H @ self.x
        self.x = self.x + K @ innov
        self.P = (torch.eye(2) - K @ self.H) @ self.P
        return 0.5 * (innov ** 2 / S + S.log()).sum()
