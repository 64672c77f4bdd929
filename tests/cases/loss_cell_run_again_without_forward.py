# %% [case]
# id: loss-cell-run-again-without-forward
# source: beginner's notebook, the training cell is run a second time without the forward cell
# family: second_backward
# fails: 4
# culprit: 3:4
# saved: 2:1
# needed: 4:4
# effect: other
# observe: [p.detach().clone() for p in net.parameters()]
# note: cell 4 is cell 3 once more; ypred belongs to the freed graph. Fix: the forward goes into the training cell.
# %%
import torch
import torch.nn as nn
torch.manual_seed(42)
xs = torch.tensor([[2.0, 3.0, -1.0], [3.0, -1.0, 0.5], [0.5, 1.0, 1.0], [1.0, 1.0, -1.0]])
ys = torch.tensor([1.0, -1.0, -1.0, 1.0]).unsqueeze(1)
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1), nn.Tanh())
# %%
ypred = net(xs)
# %%
loss = ((ypred - ys) ** 2).sum()
for p in net.parameters():
    p.grad = None
loss.backward()
with torch.no_grad():
    for p in net.parameters():
        p -= 0.05 * p.grad
print(loss.item())
# %%
loss = ((ypred - ys) ** 2).sum()
for p in net.parameters():
    p.grad = None
loss.backward()
with torch.no_grad():
    for p in net.parameters():
        p -= 0.05 * p.grad
print(loss.item())
# %% [fixed 4]
ypred = net(xs)
loss = ((ypred - ys) ** 2).sum()
for p in net.parameters():
    p.grad = None
loss.backward()
with torch.no_grad():
    for p in net.parameters():
        p -= 0.05 * p.grad
print(loss.item())
