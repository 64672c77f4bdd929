# %% [case]
# id: other-backward-of-a-vector
# source: per-sample losses whose backward is called without a reduction
# family: other
# fails: 2
# culprit: -
# saved: -
# needed: -
# effect: same
# observe: -
# note: grad can be implicitly created only for scalar outputs; the in-place code around it is fine.
# %%
import torch
from torch import nn
torch.manual_seed(0)
reg = nn.Linear(3, 1)
x, y = torch.randn(5, 3), torch.randn(5, 1)
# %%
err = reg(x) - y
err *= 0.5
loss = err.pow(2)
loss.backward()
# %% [fixed 2]
err = reg(x) - y
err *= 0.5
loss = err.pow(2).mean()
loss.backward()
