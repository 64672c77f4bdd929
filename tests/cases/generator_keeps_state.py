# %% [case]
# id: generator-keeps-state
# source: a textbook mistake in other words
# family: second_backward
# fails: 2
# culprit: -
# saved: -
# needed: 2:5
# effect: truncates
# observe: [p.detach().clone() for p in cell.parameters()]
# note: a generator keeps the state in a local name of its own
# %%
import torch
from torch import nn
torch.manual_seed(0)
cell = nn.GRUCell(2, 3); opt = torch.optim.SGD(cell.parameters(), lr=0.1)
def stream(xs):
    z = torch.zeros(1, 3)
    for x in xs:
        z = cell(x, z)
        yield z.square().sum()
# %%
for loss in stream(torch.randn(3, 1, 2)):
    opt.zero_grad()


    loss.backward()
    opt.step()
# %% [fixed 1]
import torch
from torch import nn
torch.manual_seed(0)
cell = nn.GRUCell(2, 3); opt = torch.optim.SGD(cell.parameters(), lr=0.1)
def stream(xs):
    z = torch.zeros(1, 3)
    for x in xs:
        z = cell(x, z.detach())
        yield z.square().sum()
