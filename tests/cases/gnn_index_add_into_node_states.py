# %% [case]
# id: gnn-index-add-into-node-states
# source: message passing network without a graph library
# family: modified
# fails: 3
# culprit: 1:16
# saved: 1:15
# needed: 3:4
# effect: same
# observe: [p.grad.clone() for p in gnn.parameters()]
# note: h was saved by the message Linear's gather and the gate; index_add_ writes into it. Fix: h = h.index_add(...).
# %%
import torch
from torch import nn

class MPNN(nn.Module):
    def __init__(self, d=5, layers=2):
        super().__init__()
        self.msg = nn.ModuleList(nn.Linear(2 * d, d) for _ in range(layers))
        self.gate = nn.ModuleList(nn.Linear(d, d) for _ in range(layers))
        self.readout = nn.Linear(d, 1)

    def forward(self, h, edge_index):
        src, dst = edge_index
        for msg, gate in zip(self.msg, self.gate):
            m = torch.relu(msg(torch.cat([h[src], h[dst]], dim=-1)))
            m = m * torch.sigmoid(gate(h))[dst]
            h.index_add_(0, dst, m)
        return self.readout(h).mean()
# %%
torch.manual_seed(0)
gnn = MPNN()
embed = nn.Embedding(4, 5)
atoms = torch.tensor([0, 1, 1, 3, 2])
edges = torch.tensor([[0, 1, 2, 3, 4, 1], [1, 0, 3, 2, 0, 4]])
# %%
h0 = embed(atoms)
y = gnn(h0, edges)
loss = (y - 0.7) ** 2
loss.backward()
embed.weight.grad.norm()
# %% [fixed 1]
import torch
from torch import nn

class MPNN(nn.Module):
    def __init__(self, d=5, layers=2):
        super().__init__()
        self.msg = nn.ModuleList(nn.Linear(2 * d, d) for _ in range(layers))
        self.gate = nn.ModuleList(nn.Linear(d, d) for _ in range(layers))
        self.readout = nn.Linear(d, 1)

    def forward(self, h, edge_index):
        src, dst = edge_index
        for msg, gate in zip(self.msg, self.gate):
            m = torch.relu(msg(torch.cat([h[src], h[dst]], dim=-1)))
            m = m * torch.sigmoid(gate(h))[dst]
            h = h.index_add(0, dst, m)
        return self.readout(h).mean()
