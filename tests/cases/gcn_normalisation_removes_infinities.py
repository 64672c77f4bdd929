# %% [case]
# id: gcn-normalisation-removes-infinities
# source: graph convolution with learned edge weights, symmetric normalisation
# family: modified
# fails: 3
# culprit: 2:5
# saved: 2:4
# needed: 3:2
# effect: same
# observe: [edge_logits.grad.clone()]
# note: rsqrt keeps its result, the infinities in it are overwritten. Fix: masked_fill.
# %%
import torch
from torch import nn
torch.manual_seed(0)
edge_index = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
edge_logits = torch.zeros(4, requires_grad=True)
X, lin = torch.randn(5, 3), nn.Linear(3, 2)
# %%
def gcn_norm(edge_index, w, n):
    row, col = edge_index
    deg = torch.zeros(n).scatter_add(0, col, w)
    dis = deg.rsqrt()
    dis[torch.isinf(dis)] = 0
    return dis[row] * w * dis[col]

def gcn(x, edge_index, w):
    row, col = edge_index
    norm = gcn_norm(edge_index, w, len(x))
    return torch.zeros_like(x).index_add(0, col, norm[:, None] * x[row])
# %%
out = gcn(lin(X), edge_index, torch.sigmoid(edge_logits))
out.pow(2).mean().backward()
edge_logits.grad
# %% [fixed 2]
def gcn_norm(edge_index, w, n):
    row, col = edge_index
    deg = torch.zeros(n).scatter_add(0, col, w)
    dis = deg.rsqrt()
    dis = dis.masked_fill(torch.isinf(dis), 0)
    return dis[row] * w * dis[col]

def gcn(x, edge_index, w):
    row, col = edge_index
    norm = gcn_norm(edge_index, w, len(x))
    return torch.zeros_like(x).index_add(0, col, norm[:, None] * x[row])
