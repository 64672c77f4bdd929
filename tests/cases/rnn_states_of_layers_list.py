# %% [case]
# id: rnn-states-of-layers-list
# source: a textbook mistake in other words
# family: second_backward
# fails: 2
# culprit: -
# saved: -
# needed: 2:9
# effect: truncates
# observe: [p.detach().clone() for p in layers.parameters()]
# note: one state for each layer, in a list that a loop goes through by index
# %%
import torch
from torch import nn
torch.manual_seed(0)
layers = nn.ModuleList([nn.GRUCell(3, 3) for _ in range(2)])
opt = torch.optim.SGD(layers.parameters(), lr=0.1)
zustand = [torch.zeros(2, 3) for _ in layers]
# %%
for epoch in range(3):
    x = torch.ones(2, 3)
    for k in range(2):
        zustand[k] = layers[k](x, zustand[k])
        x = zustand[k]
    verlust = x.mean()
    opt.zero_grad()

    verlust.backward()
    opt.step()
# %% [fixed 2]
for epoch in range(3):
    x = torch.ones(2, 3)
    for k in range(2):
        zustand[k] = layers[k](x, zustand[k].detach())
        x = zustand[k]
    verlust = x.mean()
    opt.zero_grad()

    verlust.backward()
    opt.step()
