# %% [case]
# id: contrastive-fill-diagonal
# source: SimCLR loss, self-similarities removed with fill_diagonal_
# family: modified
# fails: 3
# culprit: 1:11
# saved: 1:8
# needed: 3:4
# effect: same
# observe: [proj.weight.grad.clone()]
# note: exp keeps sim, fill_diagonal_ overwrites its diagonal. Fix: sim = sim * (1 - eye).
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F

def nt_xent(z, tau=0.5):
    """z: 2N x d, positives are i and i + N"""
    z = F.normalize(z, dim=1)
    sim = torch.exp(z @ z.t() / tau)
    n = z.size(0) // 2
    pos = torch.cat([sim.diag(n), sim.diag(-n)])
    sim.fill_diagonal_(0)
    return -torch.log(pos / sim.sum(1)).mean()
# %%
torch.manual_seed(0)
proj = nn.Linear(5, 3)
views = torch.randn(8, 5)
# %%
for epoch in range(2):
    proj.zero_grad()
    loss = nt_xent(proj(views))
    loss.backward()
# %% [fixed 1]
import torch
import torch.nn as nn
import torch.nn.functional as F

def nt_xent(z, tau=0.5):
    """z: 2N x d, positives are i and i + N"""
    z = F.normalize(z, dim=1)
    sim = torch.exp(z @ z.t() / tau)
    n = z.size(0) // 2
    pos = torch.cat([sim.diag(n), sim.diag(-n)])
    sim = sim * (1 - torch.eye(len(z)))
    return -torch.log(pos / sim.sum(1)).mean()
