# %% [case]
# id: losses-list-mean-sent-back
# source: a textbook mistake in other words
# family: second_backward
# fails: 2
# culprit: -
# saved: -
# needed: 2:6
# effect: other
# observe: [p.detach().clone() for p in net.parameters()]
# note: the mean of all losses so far is what goes back
# %%
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Linear(3, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1); verlauf = []
# %%
for i in range(3):
    wert = net(torch.ones(2, 3) * i).pow(2).mean()
    verlauf.append(wert)
    mittel = torch.stack(verlauf).mean()
    opt.zero_grad()
    mittel.backward()
    opt.step()
# %% [fixed 2]
for i in range(3):
    wert = net(torch.ones(2, 3) * i).pow(2).mean()
    verlauf.append(wert.detach())
    mittel = torch.stack(verlauf).mean()
    opt.zero_grad()
    wert.backward()
    opt.step()
