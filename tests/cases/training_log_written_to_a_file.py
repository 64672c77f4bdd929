# %% [case]
# id: training-log-written-to-a-file
# source: training loop that keeps a csv log next to it
# family: modified
# fails: 3
# culprit: 3:8
# saved: 3:4
# needed: 3:7
# effect: truncates
# observe: [cell.weight_hh.detach().clone(), head.weight.detach().clone()]
# note: h carries the graph of the last step (retain_graph=True), opt.step() changed the weights. Fix: h = h.detach().
# %%
import csv, os, tempfile
import torch
from torch import nn
torch.manual_seed(0)
cell, head = nn.RNNCell(2, 5), nn.Linear(5, 1)
opt = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.1)
logfile = os.path.join(tempfile.mkdtemp(), 'log.csv')
# %%
stream = [(torch.randn(3, 2), torch.randn(3, 1)) for _ in range(3)]
h = torch.zeros(3, 5)
# %%
with open(logfile, 'w', newline='') as f:
    log = csv.writer(f)
    for i, (x, y) in enumerate(stream):
        h = cell(x, h)
        loss = (head(h) - y).abs().mean()
        opt.zero_grad()
        loss.backward(retain_graph=True)
        opt.step()
        log.writerow([i, loss.item()])
# %% [fixed 3]
with open(logfile, 'w', newline='') as f:
    log = csv.writer(f)
    for i, (x, y) in enumerate(stream):
        h = cell(x, h.detach())
        loss = (head(h) - y).abs().mean()
        opt.zero_grad()
        loss.backward(retain_graph=True)
        opt.step()
        log.writerow([i, loss.item()])
