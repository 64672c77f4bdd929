# %% [case]
# id: tbptt-windows-overlap
# source: a textbook mistake in other words
# family: second_backward
# fails: 2
# culprit: -
# saved: -
# needed: 2:9
# effect: other
# observe: [p.detach().clone() for p in cell.parameters()]
# note: truncated windows overlap, so that losses are gone through again
# %%
import torch
from torch import nn
torch.manual_seed(0)
cell = nn.RNNCell(2, 3); opt = torch.optim.SGD(cell.parameters(), lr=0.1); seq = torch.randn(8, 1, 2)
# %%
h = torch.zeros(1, 3)
window = []
for t in range(8):
    h = cell(seq[t], h)
    window.append(h.pow(2).mean())
    if len(window) >= 3:
        loss = sum(window[-3:])
        opt.zero_grad()
        loss.backward()
        opt.step()
# %% [fixed 2]
h = torch.zeros(1, 3)
window = []
for t in range(8):
    h = cell(seq[t], h)
    window.append(h.pow(2).mean())
    if len(window) >= 3:
        loss = sum(window[-3:])
        opt.zero_grad()
        loss.backward()
        opt.step()
        h = h.detach()
        window = [w.detach() for w in window]
