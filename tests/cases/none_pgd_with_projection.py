# %% [case]
# id: none-pgd-with-projection
# source: PGD attack and a memory queue written the right way
# family: none
# fails: -
# culprit: -
# saved: -
# needed: -
# effect: same
# observe: [delta.detach()]
# note: delta.data and queue writes happen after each backward: healthy.
# %%
import torch
import torch.nn as nn
torch.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(9, 8), nn.ReLU(), nn.Linear(8, 2))
x, y = torch.rand(5, 1, 3, 3), torch.tensor([0, 1, 0, 1, 1])
queue, ptr = torch.zeros(10, 8), 0
# %%
delta = torch.zeros_like(x, requires_grad=True)
for t in range(3):
    loss = nn.functional.cross_entropy(model(x + delta), y)
    loss.backward()
    delta.data = (delta + 0.02 * delta.grad.detach().sign()).clamp(-0.1, 0.1)
    delta.data = (x.data + delta.data).clamp(0, 1) - x.data
    delta.grad.zero_()
    feats = model[:2](x).detach()
    queue[ptr:ptr + 5] = feats
    ptr = (ptr + 5) % 10
# %%
loss = nn.functional.cross_entropy(model(x + delta), y)
model.zero_grad()
loss.backward()
