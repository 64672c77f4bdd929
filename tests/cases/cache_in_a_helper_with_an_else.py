# %% [case]
# id: cache-in-a-helper-with-an-else
# source: https://github.com/sigeisler/robustness_of_gnns_at_scale/issues/4 (attacked_model.train() leads to autograd error)
# family: second_backward
# fails: 3
# culprit: -
# saved: 2:46|2:45
# needed: 3:12
# effect: same
# observe: [losses, attack.perturbed_edge_weight.detach().clone()]
# note: in training mode the GCN caches the normalized adjacency, which depends on the attacked edge weights; the thread switches the caching off
# %%
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(4)
n, d, n_classes = 7, 5, 3
attr = torch.randn(n, d)
labels = torch.randint(0, n_classes, (n,))
edge_index = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 0, 2], [1, 2, 3, 4, 5, 6, 0, 3, 5]])
# %%
class GCNConv(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.lin = nn.Linear(in_channels, out_channels)

    def forward(self, x, edge_idx, edge_weight):
        x = self.lin(x)
        out = torch.zeros_like(x)
        return out.index_add(0, edge_idx[1], x[edge_idx[0]] * edge_weight[:, None])


class GCN(nn.Module):
    def __init__(self, n_features, n_classes, n_filters=8, do_cache_adj_prep=True, do_normalize_adj_once=True):
        super().__init__()
        self.do_cache_adj_prep = do_cache_adj_prep
        self.do_normalize_adj_once = do_normalize_adj_once
        self.adj_preped = None
        self.layers = nn.ModuleList([GCNConv(n_features, n_filters), GCNConv(n_filters, n_classes)])

    def forward(self, data, adj):
        edge_idx, edge_weight = adj
        edge_idx, edge_weight = self._cache_if_option_is_set(self._preprocess_adjacency_matrix, data, edge_idx, edge_weight)
        x = F.relu(self.layers[0](data, edge_idx, edge_weight))
        return self.layers[1](x, edge_idx, edge_weight)

    def release_cache(self):
        self.adj_preped = None

    def _cache_if_option_is_set(self, callable, *inputs):
        if self.training and self.adj_preped is not None:
            return self.adj_preped
        else:
            adj_preped = callable(*inputs)

        if self.training and self.do_cache_adj_prep and self.do_normalize_adj_once:
            self.adj_preped = adj_preped
        return adj_preped

    def _preprocess_adjacency_matrix(self, x, edge_idx, edge_weight):
        loops = torch.arange(x.shape[0])
        edge_idx = torch.cat((edge_idx, loops.expand(2, -1)), dim=1)
        edge_weight = torch.cat((edge_weight, torch.ones(x.shape[0])))
        row, col = edge_idx
        deg = torch.zeros(x.shape[0]).index_add(0, col, edge_weight)
        deg_inv_sqrt = deg.pow(-0.5)
        edge_weight = deg_inv_sqrt[row] * edge_weight * deg_inv_sqrt[col]
        return edge_idx, edge_weight
# %%
class PRBCD:
    def __init__(self, attacked_model, edge_index, lr=0.1):
        self.attacked_model = attacked_model
        self.attacked_model.train()
        self.edge_index = edge_index
        self.lr = lr
        self.perturbed_edge_weight = torch.full((edge_index.shape[1],), 0.5, requires_grad=True)

    def step(self):
        logits = self.attacked_model(attr, (self.edge_index, self.perturbed_edge_weight))
        loss = F.cross_entropy(logits, labels)
        gradient, = torch.autograd.grad(loss, self.perturbed_edge_weight)
        with torch.no_grad():
            self.perturbed_edge_weight += self.lr * gradient
            self.perturbed_edge_weight.clamp_(1e-3, 1)
        return loss.item()

torch.manual_seed(0)
attacked_model = GCN(d, n_classes)
attack = PRBCD(attacked_model, edge_index)
losses = [attack.step() for epoch in range(4)]
print(losses)
# %% [fixed 3]
class PRBCD:
    def __init__(self, attacked_model, edge_index, lr=0.1):
        self.attacked_model = attacked_model
        self.attacked_model.train()
        self.edge_index = edge_index
        self.lr = lr
        self.perturbed_edge_weight = torch.full((edge_index.shape[1],), 0.5, requires_grad=True)

    def step(self):
        logits = self.attacked_model(attr, (self.edge_index, self.perturbed_edge_weight))
        loss = F.cross_entropy(logits, labels)
        gradient, = torch.autograd.grad(loss, self.perturbed_edge_weight)
        with torch.no_grad():
            self.perturbed_edge_weight += self.lr * gradient
            self.perturbed_edge_weight.clamp_(1e-3, 1)
        return loss.item()

torch.manual_seed(0)
attacked_model = GCN(d, n_classes, do_cache_adj_prep=False)
attack = PRBCD(attacked_model, edge_index)
losses = [attack.step() for epoch in range(4)]
print(losses)
