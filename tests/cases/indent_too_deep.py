# %% [case]
# id: indent-too-deep
# source: a textbook mistake in other words
# family: second_backward
# fails: 2
# culprit: -
# saved: -
# needed: 2:7
# effect: other
# observe: [p.detach().clone() for p in net.parameters()]
# note: the update is one indent too deep
# %%
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Linear(3, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)
# %%
for epoch in range(2):
    loss = 0
    for x in torch.randn(3, 4, 3):
        loss += net(x).pow(2).mean()

        opt.zero_grad()
        loss.backward()
        opt.step()
# %% [fixed 2]
for epoch in range(2):
    loss = 0
    for x in torch.randn(3, 4, 3):
        loss += net(x).pow(2).mean()

    opt.zero_grad()
    loss.backward()
    opt.step()
