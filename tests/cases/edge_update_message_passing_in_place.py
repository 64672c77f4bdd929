# %% [case]
# id: edge-update-message-passing-in-place
# source: github.com/pyg-team/pytorch_geometric issue 145 (message passing that updates edge features: may they be modified in place?)
# family: none
# fails: -
# culprit: -
# saved: -
# needed: -
# effect: same
# observe: [losses] + [p.detach().clone() for p in net.parameters()]
# note: Healthy: e is the output of linear and add, it is used only through cat and scatter_add_, which do not save it; the in-place ReLUs follow a Linear. Fix: nothing to do.
# %%
import torch
from torch import nn

torch.manual_seed(4)

def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 16), nn.ReLU(inplace=True), nn.Linear(16, o))
# %%
class EdgeBlock(nn.Module):
    """updates the bonds first, then the atoms"""
    def __init__(self, node, edge):
        super().__init__()
        self.edge_mlp, self.node_mlp = mlp(2 * node + edge, edge), mlp(node + edge, node)

    def forward(self, x, links, e):
        src, dst = links
        e += self.edge_mlp(torch.cat([x[src], x[dst], e], dim=1))     # bonds, in place
        gathered = x.new_zeros(x.size(0), e.size(1))
        gathered.scatter_add_(0, dst.unsqueeze(1).expand_as(e), e)
        return x + self.node_mlp(torch.cat([x, gathered], dim=1)), e

class BondNet(nn.Module):
    def __init__(self, depth=3):
        super().__init__()
        self.enc_x, self.enc_e = nn.Linear(4, 8), nn.Linear(2, 6)
        self.blocks = nn.ModuleList(EdgeBlock(8, 6) for _ in range(depth))
        self.read = nn.Linear(6, 1)

    def forward(self, x, links, e):
        x, e = self.enc_x(x), self.enc_e(e)
        for block in self.blocks:
            x, e = block(x, links, e)
        return self.read(e).squeeze(1)
# %%
atoms, bonds = torch.randn(7, 4), torch.rand(12, 2)
links = torch.stack([torch.randint(0, 7, (12,)), torch.randint(0, 7, (12,))])
strength = bonds.sum(1)
net = BondNet()
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
# %%
losses = []
for epoch in range(15):
    opt.zero_grad()
    loss = (net(atoms, links, bonds) - strength).square().mean()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses[0], losses[-1])
