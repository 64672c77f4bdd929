# %% [case]
# id: tree-lstm-cell-becomes-its-tanh
# source: https://github.com/facebookresearch/latent-treelstm/issues/5
# family: silent
# fails: -
# culprit: 2:15
# saved: -
# needed: 4:7
# effect: same
# observe: [loss.detach()] + [p.grad.clone() for p in params]
# note: c.tanh_() overwrites the cell state that is returned: parents get tanh(c) instead of c, nothing is raised. The author agrees it is a bug; fix: c.tanh().
# %%
import torch
from torch import nn
torch.manual_seed(5)
# %%
class BinaryTreeLstmCell(nn.Module):
    def __init__(self, hidden_dim, dropout_prob=0.0):
        super().__init__()
        self.h_dim = hidden_dim
        self.linear = nn.Linear(2 * hidden_dim, 5 * hidden_dim)
        self.dropout = nn.Dropout(dropout_prob)

    def forward(self, h_l, c_l, h_r, c_r):
        h_lr = torch.cat([h_l, h_r], dim=-1)
        g, i, f_l, f_r, o = self.linear(h_lr).chunk(5, dim=-1)
        g = self.dropout(g.tanh())
        i, o = i.sigmoid(), o.sigmoid()
        f_l, f_r = (f_l + 1).sigmoid(), (f_r + 1).sigmoid()
        c = i * g + f_l * c_l + f_r * c_r
        h = o * c.tanh_()
        return h, c
# %%
emb, leaf, cell, out = nn.Embedding(10, 6), nn.Linear(6, 12), BinaryTreeLstmCell(6), nn.Linear(6, 2)
params = [p for m in (emb, leaf, cell, out) for p in m.parameters()]

def encode(tree):
    if isinstance(tree, int):
        return leaf(emb(torch.tensor([tree]))).chunk(2, dim=-1)
    (h_l, c_l), (h_r, c_r) = encode(tree[0]), encode(tree[1])
    return cell(h_l, c_l, h_r, c_r)
# %%
trees = [((1, 2), (3, (4, 5))), ((6, (7, 8)), 9)]
opt = torch.optim.Adadelta(params)
logits = torch.cat([out(encode(t)[0]) for t in trees])
loss = nn.functional.cross_entropy(logits, torch.tensor([0, 1]))

opt.zero_grad()
loss.backward()
opt.step()
print(loss.item())
# %% [fixed 2]
class BinaryTreeLstmCell(nn.Module):
    def __init__(self, hidden_dim, dropout_prob=0.0):
        super().__init__()
        self.h_dim = hidden_dim
        self.linear = nn.Linear(2 * hidden_dim, 5 * hidden_dim)
        self.dropout = nn.Dropout(dropout_prob)

    def forward(self, h_l, c_l, h_r, c_r):
        h_lr = torch.cat([h_l, h_r], dim=-1)
        g, i, f_l, f_r, o = self.linear(h_lr).chunk(5, dim=-1)
        g = self.dropout(g.tanh())
        i, o = i.sigmoid(), o.sigmoid()
        f_l, f_r = (f_l + 1).sigmoid(), (f_r + 1).sigmoid()
        c = i * g + f_l * c_l + f_r * c_r
        h = o * c.tanh()
        return h, c
