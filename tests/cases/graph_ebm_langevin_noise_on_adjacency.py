# %% [case]
# id: graph-ebm-langevin-noise-on-adjacency
# source: divelab/DIG issue 164, Langevin noise on an adjacency that requires grad
# family: leaf
# fails: 3
# culprit: 2:7
# saved: -
# needed: -
# effect: same
# observe: adj
# note: The chain's adjacency requires grad (it is a leaf), so the noise and the clamp cannot be applied in place under autograd. Fix: wrap the chain's update in torch.no_grad().
# %%
import torch
import torch.nn as nn

torch.manual_seed(5)


class GraphEnergy(nn.Module):
    def __init__(self, n_types=4, hidden=16):
        super().__init__()
        self.msg = nn.Linear(n_types, hidden)
        self.upd = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, 1)

    def forward(self, adj, nodes):
        sym = 0.5 * (adj + adj.transpose(1, 2))
        h = torch.tanh(sym @ self.msg(nodes))
        h = torch.tanh(sym @ self.upd(h))
        return self.out(h.sum(1)).squeeze(-1)


energy = GraphEnergy()
for p in energy.parameters():
    p.requires_grad_(False)
# %%
def langevin(energy, adj, nodes, steps=10, step_size=0.2, sigma=0.02):
    adj.requires_grad_(True)
    noise = torch.empty_like(adj)
    trace = []
    for k in range(steps):
        noise.normal_(0, sigma)
        adj.add_(noise)
        e = energy(adj, nodes).sum()
        grad, = torch.autograd.grad(e, adj)
        adj.sub_(step_size * grad.clamp(-0.1, 0.1))
        adj.clamp_(0, 1)
        trace.append(e.item())
    adj.requires_grad_(False)
    return adj, trace
# %%
n_graphs, n_nodes = 6, 7
adj = torch.rand(n_graphs, n_nodes, n_nodes)
nodes = nn.functional.one_hot(torch.randint(0, 4, (n_graphs, n_nodes)), 4).float()
adj, trace = langevin(energy, adj, nodes)
bonds = (adj + adj.transpose(1, 2) > 1).sum((1, 2)) // 2
print(trace[0], trace[-1], bonds.tolist())
# %% [fixed 2]
def langevin(energy, adj, nodes, steps=10, step_size=0.2, sigma=0.02):
    adj.requires_grad_(True)
    noise = torch.empty_like(adj)
    trace = []
    for k in range(steps):
        noise.normal_(0, sigma)
        with torch.no_grad():
            adj.add_(noise)
        e = energy(adj, nodes).sum()
        grad, = torch.autograd.grad(e, adj)
        with torch.no_grad():
            adj.sub_(step_size * grad.clamp(-0.1, 0.1))
            adj.clamp_(0, 1)
        trace.append(e.item())
    adj.requires_grad_(False)
    return adj, trace
