# %% [case]
# id: tree-composer-writes-nodes-into-one-tensor
# source: pytorch/pytorch#74806
# family: modified
# fails: 4
# culprit: 2:18
# saved: 2:11
# needed: 4:7
# effect: same
# observe: [losses] + [p.detach().clone() for p in list(composer.parameters()) + list(clf.parameters())]
# note: binary tree reduction: leaves and inner nodes live in one preallocated tensor. The gate's products save the rows of the two children (views of nodes); the later nodes[parent] = ... raises the version of all rows. The rows saved never change value: a false alarm of the shared counter. Works with plain addition, as in the issue. Fix: a python list of nodes.
# %%
from dataclasses import dataclass, field
import torch
from torch import nn, Tensor
torch.manual_seed(74806)

@dataclass
class Tree:
    """leaves are 0..n-1, `merges` lists (left, right) -> next free index"""
    words: Tensor
    label: int
    merges: list = field(default_factory=list)

    def __len__(self):
        return len(self.words)
# %%
class TreeComposer(nn.Module):
    def __init__(self, dim: int, mode: str = "gate"):
        super().__init__()
        self.gate = nn.Linear(2 * dim, dim)
        self.mode = mode

    def compose(self, left: Tensor, right: Tensor) -> Tensor:
        if self.mode == "sum":
            return left + right
        g = torch.sigmoid(self.gate(torch.cat([left, right], dim=-1)))
        return g * left + (1 - g) * right

    def forward(self, emb: Tensor, merges) -> Tensor:
        n = emb.size(0)
        nodes = emb.new_zeros(n + len(merges), emb.size(1))
        nodes[:n] = emb
        for k, (i, j) in enumerate(merges):
            nodes[n + k] = self.compose(nodes[i], nodes[j])
        return nodes[-1]
# %%
vocab, dim = 12, 5
embedding, composer, clf = nn.Embedding(vocab, dim), TreeComposer(dim), nn.Linear(dim, 2)
optimizer = torch.optim.Adam([{"params": embedding.parameters(), "lr": 1e-2},
                              {"params": [*composer.parameters(), *clf.parameters()]}], lr=5e-3)
trees = [Tree(torch.tensor([1, 4, 2, 7]), 0, [(0, 1), (2, 3), (4, 5)]),
         Tree(torch.tensor([3, 9, 11]), 1, [(1, 2), (0, 3)])]
# %%
losses = []
for epoch in range(2):
    for tree in trees:
        root = composer(embedding(tree.words), tree.merges)
        loss = nn.functional.cross_entropy(clf(root)[None], torch.tensor([tree.label]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
print(losses)
# %% [fixed 2]
class TreeComposer(nn.Module):
    def __init__(self, dim: int, mode: str = "gate"):
        super().__init__()
        self.gate = nn.Linear(2 * dim, dim)
        self.mode = mode

    def compose(self, left: Tensor, right: Tensor) -> Tensor:
        if self.mode == "sum":
            return left + right
        g = torch.sigmoid(self.gate(torch.cat([left, right], dim=-1)))
        return g * left + (1 - g) * right

    def forward(self, emb: Tensor, merges) -> Tensor:
        nodes = list(emb)
        for i, j in merges:
            nodes.append(self.compose(nodes[i], nodes[j]))
        return nodes[-1]
