# %% [case]
# id: forward-cell-once-backward-twice
# source: a textbook mistake in other words
# family: second_backward
# fails: 3
# culprit: -
# saved: -
# needed: 3:1
# effect: same
# observe: [w.detach().clone()]
# note: the backward cell is run again, after an update through .data, the forward cell is not
# %%
import torch
torch.manual_seed(0)
w = torch.randn(3, requires_grad=True); x = torch.randn(5, 3)
loss = torch.sigmoid(x @ w).pow(2).mean()
# %%
loss.backward()
w.data -= 0.1 * w.grad; w.grad = None
# %%
loss.backward()
w.data -= 0.1 * w.grad; w.grad = None
# %% [fixed 3]
loss = torch.sigmoid(x @ w).pow(2).mean()
loss.backward()
w.data -= 0.1 * w.grad; w.grad = None
