# %% [case]
# id: hetero-conv-shallow-copy-of-node-dict
# source: https://github.com/0215Arthur/HG-GNN/issues/11 (session recommendation on a user/item graph, 'irregular assignment' in the model; here as a hetero conv over a dict of node types)
# family: modified
# fails: 4
# culprit: 2:15
# saved: 2:14
# needed: 4:10
# effect: other
# observe: [loss.detach()] + [p.grad.clone() for p in model.parameters()]
# note: out = dict(h) copies the dict, not the tensors: out[dst] += message writes into h[dst], which the linear layer of an earlier relation saved. Human fix: out[dst] = out[dst] + ...; it also changes the loss, since the later relations then read the old h.
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F
from collections import namedtuple

Graph = namedtuple("Graph", "edges num_nodes")
n_users, n_items, dim = 4, 7, 6
torch.manual_seed(2023)
pairs = torch.stack([torch.randint(0, n_users, (12,)), torch.randint(0, n_items, (12,))])
G = Graph(edges={("user", "clicks", "item"): pairs,
                 ("item", "clicked_by", "user"): pairs.flip(0),
                 ("item", "next", "item"): torch.stack([torch.arange(n_items - 1), torch.arange(1, n_items)])},
          num_nodes={"user": n_users, "item": n_items})
# %%
class HeteroConv(nn.Module):
    """mean aggregation, one linear map per relation, the results are summed per node type"""
    def __init__(self, etypes, dim):
        super().__init__()
        self.lin = nn.ModuleDict({rel: nn.Linear(dim, dim, bias=False) for _, rel, _ in etypes})

    def aggregate(self, m, dst, n):
        deg = torch.bincount(dst, minlength=n).clamp(min=1)
        return m.new_zeros(n, m.size(1)).index_add(0, dst, m) / deg[:, None]

    def forward(self, g, h):
        out = dict(h)                 # self loop
        for (src, rel, dst), (u, v) in g.edges.items():
            msg = self.lin[rel](h[src])[u]
            out[dst] += self.aggregate(msg, v, g.num_nodes[dst])
        return {ntype: F.relu(x) for ntype, x in out.items()}
# %%
class HG_GNN(nn.Module):
    def __init__(self, g, dim, num_layers=2):
        super().__init__()
        self.g = g
        self.v2e = nn.ModuleDict({t: nn.Embedding(n, dim) for t, n in g.num_nodes.items()})
        self.norm = nn.ModuleDict({t: nn.LayerNorm(dim) for t in g.num_nodes})
        self.convs = nn.ModuleList([HeteroConv(g.edges, dim) for _ in range(num_layers)])
        self.alpha = nn.Linear(2 * dim, 1)

    def forward(self, user, seq, mask):
        h = {t: self.norm[t](self.v2e[t].weight) for t in self.g.num_nodes}
        for conv in self.convs:
            h = conv(self.g, h)
        user_vec, item_vec = h["user"][user], h["item"][seq]
        m = mask.unsqueeze(-1)
        sess_vec = (item_vec * m).sum(1) / m.sum(1)
        gate = torch.sigmoid(self.alpha(torch.cat([user_vec, sess_vec], dim=-1)))
        seq_embeds = gate * sess_vec + (1 - gate) * user_vec
        return seq_embeds @ self.v2e["item"].weight.t()

model = HG_GNN(G, dim)
optimizer = torch.optim.Adam(model.parameters(), lr=0.003, weight_decay=1e-5)
# %%
user = torch.tensor([0, 1, 3])
seq = torch.tensor([[1, 2, 0], [4, 5, 6], [3, 0, 0]])
mask = torch.tensor([[1., 1, 0], [1, 1, 1], [1, 0, 0]])
target = torch.tensor([3, 0, 2])

model.train()
for epoch in range(2):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(user, seq, mask), target)
    loss.backward()
    optimizer.step()
    print(f"epoch {epoch} loss {loss:.4f}")
# %% [fixed 2]
class HeteroConv(nn.Module):
    """mean aggregation, one linear map per relation, the results are summed per node type"""
    def __init__(self, etypes, dim):
        super().__init__()
        self.lin = nn.ModuleDict({rel: nn.Linear(dim, dim, bias=False) for _, rel, _ in etypes})

    def aggregate(self, m, dst, n):
        deg = torch.bincount(dst, minlength=n).clamp(min=1)
        return m.new_zeros(n, m.size(1)).index_add(0, dst, m) / deg[:, None]

    def forward(self, g, h):
        out = dict(h)                 # self loop
        for (src, rel, dst), (u, v) in g.edges.items():
            msg = self.lin[rel](h[src])[u]
            out[dst] = out[dst] + self.aggregate(msg, v, g.num_nodes[dst])
        return {ntype: F.relu(x) for ntype, x in out.items()}
