# %% [case]
# id: jury-votes-added-to-attribute-made-in-init
# source: github BorealisAI/advertorch#17 (ensemble model whose forward adds the members to self.out, created once in __init__)
# family: second_backward
# fails: 4
# culprit: 4:7 | 2:14
# saved: 2:14
# needed: 4:7
# effect: same
# observe: history + [m[0].weight.detach().clone() for m in jury.members]
# note: self.total is made once in __init__ and every forward adds to it, so the second batch drags the graph of the first along. Fix: start a new sum in every forward.
# %%
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
BATCH = 10
# %%
class Jury(nn.Module):
    """A few small experts who score every wine; the jury reports the mean score."""

    def __init__(self, n_members, n_features, n_grades):
        super().__init__()
        self.members = nn.ModuleList(
            nn.Sequential(nn.Linear(n_features, 12), nn.Tanh(), nn.Linear(12, n_grades))
            for _ in range(n_members)
        )
        self.total = torch.zeros(BATCH, n_grades)

    def forward(self, wine):
        for member in self.members:
            self.total += member(wine)
        return self.total / len(self.members)
# %%
chemistry = torch.randn(40, 6)
grade = (chemistry[:, 0] + 0.5 * chemistry[:, 3] > 0).long() + (chemistry[:, 1] > 1).long()
loader = DataLoader(TensorDataset(chemistry, grade), batch_size=BATCH, shuffle=False)

jury = Jury(n_members=3, n_features=6, n_grades=3)
optimizer = torch.optim.SGD(jury.parameters(), lr=0.1)
loss_fn = nn.CrossEntropyLoss()
# %%
history = []
for epoch in range(2):
    epoch_loss = 0.0
    for wine, target in loader:
        optimizer.zero_grad()
        loss = loss_fn(jury(wine), target)
        loss.backward()
        optimizer.step()
        epoch_loss += loss.item()
    history.append(epoch_loss / len(loader))
    print(epoch, history[-1])
# %% [fixed 2]
class Jury(nn.Module):
    """A few small experts who score every wine; the jury reports the mean score."""

    def __init__(self, n_members, n_features, n_grades):
        super().__init__()
        self.members = nn.ModuleList(
            nn.Sequential(nn.Linear(n_features, 12), nn.Tanh(), nn.Linear(12, n_grades))
            for _ in range(n_members)
        )

    def forward(self, wine):
        total = 0
        for member in self.members:
            total = total + member(wine)
        return total / len(self.members)
