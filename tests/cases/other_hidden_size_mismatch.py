# %% [case]
# id: other-hidden-size-mismatch
# source: sequence tagger with the wrong size in the output layer
# family: other
# fails: 2
# culprit: -
# saved: -
# needed: -
# effect: same
# observe: -
# note: an ordinary shape error next to in-place code; not ours.
# %%
import torch
from torch import nn
torch.manual_seed(0)
lstm = nn.LSTM(4, 6, bidirectional=True, batch_first=True)
fc = nn.Linear(6, 3)
# %%
x = torch.randn(2, 5, 4)
h, _ = lstm(x)
h *= 0.5
loss = fc(h).sum()
loss.backward()
# %% [fixed 1]
import torch
from torch import nn
torch.manual_seed(0)
lstm = nn.LSTM(4, 6, bidirectional=True, batch_first=True)
fc = nn.Linear(12, 3)
