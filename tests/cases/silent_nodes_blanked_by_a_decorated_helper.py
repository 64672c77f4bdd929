# %% [case]
# id: silent-nodes-blanked-by-a-decorated-helper
# source: naoto0804/pytorch-inpainting-with-partial-conv#6, in other words
# family: silent
# fails: -
# culprit: 2:3|2:14
# saved: -
# needed: 3:7
# effect: same
# observe: [p.grad.clone() for p in gnn.parameters()]
# note: a helper decorated with no_grad zeroes the nodes without neighbours, so their gradient still goes to the bias. Nothing is raised, since the addition before it saves nothing. Fix: a tracked masked_fill in forward.
# %%
import torch
from torch import nn
torch.manual_seed(10)
# %%
@torch.no_grad()
def blank_(t, where):
    t.masked_fill_(where, 0.0)

class MeanConv(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.lin = nn.Linear(d_in, d_out, bias=False)
        self.shift = nn.Parameter(0.3 * torch.ones(d_out))

    def forward(self, x, adj):
        deg = adj.sum(1, keepdim=True)
        out = adj @ self.lin(x) / deg.clamp(min=1) + self.shift
        blank_(out, deg == 0)         # lonely nodes hear nothing
        return out
# %%
adj = torch.tensor([[0, 1, 1, 0], [1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]).float()
x, y = torch.randn(4, 3), torch.randn(4, 2)
gnn = nn.ModuleList([MeanConv(3, 5), MeanConv(5, 2)])
h = gnn[0](x, adj)
h = gnn[1](torch.tanh(h), adj)
loss = ((h - y) ** 2).mean()
loss.backward()
print({name: round(p.grad.norm().item(), 4) for name, p in gnn.named_parameters()})
# %% [fixed 2]
@torch.no_grad()
def blank_(t, where):
    t.masked_fill_(where, 0.0)

class MeanConv(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.lin = nn.Linear(d_in, d_out, bias=False)
        self.shift = nn.Parameter(0.3 * torch.ones(d_out))

    def forward(self, x, adj):
        deg = adj.sum(1, keepdim=True)
        out = adj @ self.lin(x) / deg.clamp(min=1) + self.shift
        out = out.masked_fill(deg == 0, 0.0)         # lonely nodes hear nothing
        return out
