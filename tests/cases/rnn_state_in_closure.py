# %% [case]
# id: rnn-state-in-closure
# source: a textbook mistake in other words
# family: second_backward
# fails: 2
# culprit: -
# saved: -
# needed: 2:5
# effect: truncates
# observe: [p.detach().clone() for p in cell.parameters()]
# note: a recurrent state in a closure's nonlocal name
# %%
import torch
from torch import nn
torch.manual_seed(0)
cell = nn.RNNCell(3, 4)
opt = torch.optim.SGD(cell.parameters(), lr=0.1)
def make_step():
    s = torch.zeros(2, 4)
    def step(x):
        nonlocal s
        s = cell(x, s)
        return s.sum()
    return step
# %%
run = make_step()
for i in range(3):
    value = run(torch.ones(2, 3) * i)
    opt.zero_grad()
    value.backward()
    opt.step()
# %% [fixed 1]
import torch
from torch import nn
torch.manual_seed(0)
cell = nn.RNNCell(3, 4)
opt = torch.optim.SGD(cell.parameters(), lr=0.1)
def make_step():
    s = torch.zeros(2, 4)
    def step(x):
        nonlocal s
        s = cell(x, s.detach())
        return s.sum()
    return step
