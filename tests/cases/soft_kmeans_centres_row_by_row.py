# %% [case]
# id: soft-kmeans-centres-row-by-row
# source: differentiable clustering layer, soft k-means unrolled
# family: modified
# fails: 3
# culprit: 1:10
# saved: 1:7
# needed: 3:5
# effect: same
# observe: [enc.weight.grad.clone()]
# note: cdist saved the centres of this iteration, the inner loop writes its rows. Fix: stack a list of new centres.
# %%
import torch
from torch import nn

def soft_kmeans(z, k=2, iters=3, beta=4.):
    centres = z[:k].clone()
    for it in range(iters):
        d = torch.cdist(z, centres)
        w = torch.softmax(-beta * d, dim=1)
        for j in range(k):
            centres[j] = (w[:, j:j + 1] * z).sum(0) / w[:, j].sum()
    return centres, w
# %%
torch.manual_seed(0)
enc = nn.Linear(3, 2)
points = torch.cat([torch.randn(6, 3) + 2, torch.randn(6, 3) - 2])
# %%
%%time
z = enc(points)
centres, w = soft_kmeans(z)
inertia = (w * torch.cdist(z, centres).pow(2)).sum(1).mean()
inertia.backward()
# %% [fixed 1]
import torch
from torch import nn

def soft_kmeans(z, k=2, iters=3, beta=4.):
    centres = z[:k].clone()
    for it in range(iters):
        d = torch.cdist(z, centres)
        w = torch.softmax(-beta * d, dim=1)
        centres = torch.stack([(w[:, j:j + 1] * z).sum(0) / w[:, j].sum() for j in range(k)])
    return centres, w
