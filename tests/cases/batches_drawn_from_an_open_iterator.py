# %% [case]
# id: batches-drawn-from-an-open-iterator
# source: training cell that draws from a data iterator of an earlier cell
# family: modified
# fails: 3
# culprit: 2:8
# saved: 2:6
# needed: 3:3
# effect: same
# observe: [p.grad.clone() for p in model.parameters()]
# note: sigmoid keeps att, att *= mask overwrites it; the cell consumes the loader's iterator. Fix: att = att * mask.
# %%
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
ds = TensorDataset(torch.randn(8, 5, 3), torch.randint(1, 6, (8,)), torch.randn(8, 1))
batches = iter(DataLoader(ds, batch_size=4, shuffle=True))
# %%
class GatedPool(nn.Module):
    def __init__(self, d=3):
        super().__init__()
        self.gate, self.val, self.out = nn.Linear(d, 1), nn.Linear(d, d), nn.Linear(d, 1)
    def forward(self, x, lengths):
        att = torch.sigmoid(self.gate(x))
        mask = (torch.arange(x.size(1))[None] < lengths[:, None]).unsqueeze(-1)
        att *= mask
        return self.out((att * self.val(x)).sum(1) / lengths[:, None])
model = GatedPool()
# %%
x, lengths, y = next(batches)
loss = nn.functional.mse_loss(model(x, lengths), y)
loss.backward()
# %% [fixed 2]
class GatedPool(nn.Module):
    def __init__(self, d=3):
        super().__init__()
        self.gate, self.val, self.out = nn.Linear(d, 1), nn.Linear(d, d), nn.Linear(d, 1)
    def forward(self, x, lengths):
        att = torch.sigmoid(self.gate(x))
        mask = (torch.arange(x.size(1))[None] < lengths[:, None]).unsqueeze(-1)
        att = att * mask
        return self.out((att * self.val(x)).sum(1) / lengths[:, None])
model = GatedPool()
