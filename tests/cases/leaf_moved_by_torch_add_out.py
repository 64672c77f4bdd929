# %% [case]
# id: leaf-moved-by-torch-add-out
# source: discuss.pytorch.org "Inplace operation changes is_leaf attribute" https://discuss.pytorch.org/t/inplace-operation-changes-is-leaf-attribute/120297
# family: out_grad
# fails: 3
# culprit: 3:8
# saved: -
# needed: 3:8
# effect: same
# observe: [history, c.detach().clone(), c.grad.clone(), c.is_leaf]
# note: torch.add(c, 1, out=c) writes into a leaf that requires grad (operation 2 of the thread, which tries several ways to change the data under c). The value of the leaf is to be moved without a record, so the write goes under torch.no_grad() and c stays a leaf.
# %%
import torch
torch.manual_seed(13)
# %%
c = torch.randn(4, 3, 2, requires_grad=True)
weight = torch.randn(2)
print(c.is_leaf)
# %%
def score(c):
    return (torch.tanh(c) * weight).sum()

history = []
for step in range(3):
    loss = score(c)
    history.append(loss.item())
    torch.add(c, 1, out=c)
print(c.is_leaf)
# %%
loss = score(c)
loss.backward()
print(history, c.grad.norm())
# %% [fixed 3]
def score(c):
    return (torch.tanh(c) * weight).sum()

history = []
for step in range(3):
    loss = score(c)
    history.append(loss.item())
    with torch.no_grad():
        torch.add(c, 1, out=c)
print(c.is_leaf)
