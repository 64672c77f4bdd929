# %% [case]
# id: entity-embeddings-normalised-in-forward
# source: knowledge graph embeddings, entity table renormalised at the start of each score
# family: modified
# fails: 3
# culprit: 1:12
# saved: 1:16
# needed: 3:5
# effect: same
# observe: [p.grad.clone() for p in model.parameters()]
# note: the first score saved the table, the second call of the function normalises it again in place. Fix: normalise once, before both.
# %%
import torch
from torch import nn
import torch.nn.functional as F

class DistMult(nn.Module):
    def __init__(self, n_ent, n_rel, d=4):
        super().__init__()
        self.ent, self.rel = nn.Embedding(n_ent, d), nn.Embedding(n_rel, d)

    @torch.no_grad()
    def normalise(self):
        self.ent.weight.div_(self.ent.weight.norm(dim=1, keepdim=True))

    def score_all(self, e, r):
        self.normalise()
        return (self.ent(e) * self.rel(r)) @ self.ent.weight.t()
# %%
torch.manual_seed(0)
model = DistMult(6, 2)
h, r, t = torch.tensor([0, 1, 2]), torch.tensor([0, 1, 0]), torch.tensor([3, 4, 5])
optim = torch.optim.Adagrad(model.parameters(), lr=0.1)
# %%
tails = F.cross_entropy(model.score_all(h, r), t)
heads = F.cross_entropy(model.score_all(t, r), h)
loss = tails + heads
optim.zero_grad()
loss.backward()
optim.step()
# %% [fixed 1]
import torch
from torch import nn
import torch.nn.functional as F

class DistMult(nn.Module):
    def __init__(self, n_ent, n_rel, d=4):
        super().__init__()
        self.ent, self.rel = nn.Embedding(n_ent, d), nn.Embedding(n_rel, d)

    @torch.no_grad()
    def normalise(self):
        self.ent.weight.div_(self.ent.weight.norm(dim=1, keepdim=True))

    def score_all(self, e, r):
        return (self.ent(e) * self.rel(r)) @ self.ent.weight.t()
# %% [fixed 3]
model.normalise()
tails = F.cross_entropy(model.score_all(h, r), t)
heads = F.cross_entropy(model.score_all(t, r), h)
loss = tails + heads
optim.zero_grad()
loss.backward()
optim.step()
