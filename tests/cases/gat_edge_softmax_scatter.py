# %% [case]
# id: gat-edge-softmax-scatter
# source: graph attention layer, softmax over the edges with scatter_add_
# family: modified
# fails: 3
# culprit: 1:8
# saved: 1:6
# needed: 3:4
# effect: same
# observe: [p.grad.clone() for p in gat.parameters()]
# note: exp keeps its result e, which is divided in place by the sums. Fix: e = e / denom[dst].
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F

def edge_softmax(score, dst, n):
    e = torch.exp(score - score.max().detach())
    denom = torch.zeros(n).scatter_add_(0, dst, e)
    e /= denom[dst] + 1e-16
    return e

class GATLayer(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.W = nn.Linear(i, o, bias=False)
        self.a = nn.Linear(2 * o, 1, bias=False)
    def forward(self, x, ei):
        src, dst = ei
        h = self.W(x)
        s = F.leaky_relu(self.a(torch.cat([h[src], h[dst]], 1)), 0.2).squeeze(1)
        alpha = edge_softmax(s, dst, x.size(0))
        out = torch.zeros_like(h)
        out.index_add_(0, dst, alpha[:, None] * h[src])
        return F.elu(out, inplace=True)
# %%
torch.manual_seed(0)
gat = nn.ModuleList([GATLayer(4, 6), GATLayer(6, 2)])
x = torch.randn(5, 4)
ei = torch.tensor([[0, 1, 2, 3, 4, 0, 2], [1, 2, 3, 4, 0, 3, 0]])
y = torch.tensor([0, 1, 1, 0, 1])
# %%
h = x
for layer in gat: h = layer(h, ei)
train = F.cross_entropy(h, y)
train.backward()
# %% [fixed 1]
import torch
import torch.nn as nn
import torch.nn.functional as F

def edge_softmax(score, dst, n):
    e = torch.exp(score - score.max().detach())
    denom = torch.zeros(n).scatter_add_(0, dst, e)
    e = e / (denom[dst] + 1e-16)
    return e

class GATLayer(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.W = nn.Linear(i, o, bias=False)
        self.a = nn.Linear(2 * o, 1, bias=False)
    def forward(self, x, ei):
        src, dst = ei
        h = self.W(x)
        s = F.leaky_relu(self.a(torch.cat([h[src], h[dst]], 1)), 0.2).squeeze(1)
        alpha = edge_softmax(s, dst, x.size(0))
        out = torch.zeros_like(h)
        out.index_add_(0, dst, alpha[:, None] * h[src])
        return F.elu(out, inplace=True)
