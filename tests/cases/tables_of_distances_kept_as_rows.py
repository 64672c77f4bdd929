# %% [case]
# id: tables-of-distances-kept-as-rows
# source: product quantisation, rows of a table of distances kept by the constructor
# family: leaf
# fails: 3
# culprit: 1:18
# saved: -
# needed: 1:18
# effect: same
# observe: [p.detach().clone() for p in quantizer.parameters()] + losses
# note: the rows are views that were made before the first of them was written, and torch takes the second one for a leaf. Fix: write through the table, which each call begins anew.
# %%
import torch
from torch import nn

class ProductQuantizer(nn.Module):
    def __init__(self, books=4, codes=8, dim=12):
        super().__init__()
        self.books = books
        self.codes = nn.Parameter(torch.randn(books, codes, dim // books))

    def begin(self):
        self.table = torch.zeros(self.books, self.codes.shape[1])
        self.rows = [self.table[b] for b in range(self.books)]

    def forward(self, query):
        self.begin()
        for b, part in enumerate(query.view(self.books, -1)):
            # squared distance to each code
            self.rows[b].copy_((self.codes[b] - part).pow(2).sum(-1))
        return self.table
# %%
torch.manual_seed(4)
quantizer = ProductQuantizer()
opt = torch.optim.SGD(quantizer.parameters(), lr=0.05)
# %%
losses = []
for query in torch.randn(5, 12):
    loss = quantizer(query).min(-1).values.sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses)
# %% [fixed 1]
import torch
from torch import nn

class ProductQuantizer(nn.Module):
    def __init__(self, books=4, codes=8, dim=12):
        super().__init__()
        self.books = books
        self.codes = nn.Parameter(torch.randn(books, codes, dim // books))

    def forward(self, query):
        table = torch.zeros(self.books, self.codes.shape[1])
        for b, part in enumerate(query.view(self.books, -1)):
            # squared distance to each code
            table[b] = (self.codes[b] - part).pow(2).sum(-1)
        return table
