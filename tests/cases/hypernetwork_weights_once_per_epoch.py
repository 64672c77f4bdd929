# %% [case]
# id: hypernetwork-weights-once-per-epoch
# source: hypernetwork, the generated weights reused for all batches of an epoch
# family: second_backward
# fails: 3
# culprit: 3:4
# saved: 1:13 | 3:2
# needed: 3:6
# effect: other
# observe: [p.detach().clone() for p in hyper.parameters()]
# note: the weights are generated once, the first batch frees their graph. Fix: generate them for every batch.
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)

class Hyper(nn.Module):
    def __init__(self, n_in=4, n_out=2, z=3):
        super().__init__()
        self.z = nn.Parameter(torch.randn(z))
        self.gen = nn.Sequential(nn.Linear(z, 10), nn.ReLU(), nn.Linear(10, n_in * n_out))
        self.shape = (n_out, n_in)
    def forward(self):
        return self.gen(self.z).view(self.shape)
# %%
hyper = Hyper()
opt = torch.optim.Adam(hyper.parameters(), 1e-2)
loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(torch.randn(12, 4), torch.randint(0, 2, (12,))), batch_size=4)
# %%
for epoch in range(2):
    W = hyper()
    for xb, yb in loader:
        loss = F.cross_entropy(F.linear(xb, W), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
# %% [fixed 3]
for epoch in range(2):
    for xb, yb in loader:
        W = hyper()
        loss = F.cross_entropy(F.linear(xb, W), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
