# %% [case]
# id: factorisation-machine-offsets-in-place
# source: click-through model with per-field offsets added to the index tensor
# family: modified
# fails: 4
# culprit: 1:10
# saved: 1:20
# needed: 4:3
# effect: other
# observe: [p.grad.clone() for p in fm.parameters()]
# note: the embedding saved the index tensor x, the next module adds its offsets to the very same tensor. Fix: x = x + offsets.
# %%
import torch
from torch import nn

class FeaturesLinear(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.fc = nn.Embedding(3 * sum(dims), 1)
        self.offsets = torch.tensor([0, *dims[:-1]]).cumsum(0)
    def forward(self, x):
        x += self.offsets
        return self.fc(x).sum(1)

class FeaturesEmbedding(nn.Module):
    def __init__(self, dims, k):
        super().__init__()
        self.embedding = nn.Embedding(3 * sum(dims), k)
        self.offsets = torch.tensor([0, *dims[:-1]]).cumsum(0)
    def forward(self, x):
        x += self.offsets
        return self.embedding(x)
# %%
class FM(nn.Module):
    def __init__(self, dims, k=4):
        super().__init__()
        self.linear = FeaturesLinear(dims)
        self.embedding = FeaturesEmbedding(dims, k)
    def forward(self, x):
        v = self.embedding(x)
        pair = 0.5 * (v.sum(1) ** 2 - (v ** 2).sum(1)).sum(1, keepdim=True)
        return torch.sigmoid(self.linear(x) + pair).squeeze(1)
# %%
torch.manual_seed(0)
fields = (4, 3, 5)
fm = FM(fields)
ids = torch.stack([torch.randint(0, n, (6,)) for n in fields], 1)
clicks = torch.randint(0, 2, (6,)).float()
# %%
bce = nn.BCELoss()
loss = bce(fm(ids), clicks)
loss.backward()
# %% [fixed 1]
import torch
from torch import nn

class FeaturesLinear(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.fc = nn.Embedding(3 * sum(dims), 1)
        self.offsets = torch.tensor([0, *dims[:-1]]).cumsum(0)
    def forward(self, x):
        x = x + self.offsets
        return self.fc(x).sum(1)

class FeaturesEmbedding(nn.Module):
    def __init__(self, dims, k):
        super().__init__()
        self.embedding = nn.Embedding(3 * sum(dims), k)
        self.offsets = torch.tensor([0, *dims[:-1]]).cumsum(0)
    def forward(self, x):
        x = x + self.offsets
        return self.embedding(x)
