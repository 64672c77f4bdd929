# %% [case]
# id: triplet-distances-diagonal-zeroed
# source: person re-identification, pairwise distances with the diagonal set to zero
# family: modified
# fails: 3
# culprit: 1:17
# saved: 1:11
# needed: 3:4
# effect: same
# observe: [embed.weight.grad.clone()]
# note: sqrt keeps its result dist, the diagonal is then overwritten. Fix: masked_fill / where.
# %%
import torch
from torch import nn
import torch.nn.functional as F

def euclidean_dist(x, y):
    m, n = x.size(0), y.size(0)
    xx = torch.pow(x, 2).sum(1, keepdim=True).expand(m, n)
    yy = torch.pow(y, 2).sum(1, keepdim=True).expand(n, m).t()
    dist = xx + yy
    dist.addmm_(x, y.t(), beta=1, alpha=-2)
    dist = dist.clamp(min=1e-12).sqrt()  # for numerical stability
    return dist

def hard_example_mining(dist, labels):
    n = dist.size(0)
    same = labels.expand(n, n).eq(labels.expand(n, n).t())
    dist[torch.eye(n, dtype=torch.bool)] = 0.
    ap = dist.masked_fill(~same, -1e9).max(1).values
    an = dist.masked_fill(same, 1e9).min(1).values
    return ap, an
# %%
torch.manual_seed(0)
embed = nn.Linear(6, 4)
ids = torch.tensor([0, 0, 1, 1, 2, 2])
imgs = torch.randn(6, 6)
# %%
f = embed(imgs)
ap, an = hard_example_mining(euclidean_dist(f, f), ids)
loss = F.margin_ranking_loss(an, ap, torch.ones_like(an), margin=0.3)
loss.backward()
# %% [fixed 1]
import torch
from torch import nn
import torch.nn.functional as F

def euclidean_dist(x, y):
    m, n = x.size(0), y.size(0)
    xx = torch.pow(x, 2).sum(1, keepdim=True).expand(m, n)
    yy = torch.pow(y, 2).sum(1, keepdim=True).expand(n, m).t()
    dist = xx + yy
    dist.addmm_(x, y.t(), beta=1, alpha=-2)
    dist = dist.clamp(min=1e-12).sqrt()  # for numerical stability
    return dist

def hard_example_mining(dist, labels):
    n = dist.size(0)
    same = labels.expand(n, n).eq(labels.expand(n, n).t())
    dist = dist.masked_fill(torch.eye(n, dtype=torch.bool), 0.)
    ap = dist.masked_fill(~same, -1e9).max(1).values
    an = dist.masked_fill(same, 1e9).min(1).values
    return ap, an
