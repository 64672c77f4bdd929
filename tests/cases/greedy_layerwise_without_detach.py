# %% [case]
# id: greedy-layerwise-without-detach
# source: forward-forward style greedy training, each layer with its own optimizer
# family: modified
# fails: 3
# culprit: 2:12
# saved: 2:8
# needed: 2:11
# effect: truncates
# observe: [p.detach().clone() for l in layers for p in l.parameters()]
# note: layer 2's loss goes back through layer 1, whose weights opt.step() has just changed. Fix: h = h.detach() before the next layer.
# %%
import torch
from torch import nn
torch.manual_seed(0)
layers = [nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in [(6, 10), (10, 10), (10, 4)]]
opts = [torch.optim.Adam(l.parameters(), lr=0.01) for l in layers]
# %%
def goodness(h):
    return h.pow(2).mean(1)

def train_step(x_pos, x_neg, theta=0.5):
    losses = []
    h_pos, h_neg = x_pos, x_neg
    for layer, opt in zip(layers, opts):
        h_pos, h_neg = layer(h_pos), layer(h_neg)
        loss = nn.functional.softplus(torch.cat([theta - goodness(h_pos), goodness(h_neg) - theta])).mean()
        opt.zero_grad()
        loss.backward(retain_graph=True)
        opt.step()
        losses.append(loss.item())
    return losses
# %%
x = torch.randn(8, 6)
for step in range(2):
    print(train_step(x, -x))
# %% [fixed 2]
def goodness(h):
    return h.pow(2).mean(1)

def train_step(x_pos, x_neg, theta=0.5):
    losses = []
    h_pos, h_neg = x_pos, x_neg
    for layer, opt in zip(layers, opts):
        h_pos, h_neg = layer(h_pos.detach()), layer(h_neg.detach())
        loss = nn.functional.softplus(torch.cat([theta - goodness(h_pos), goodness(h_neg) - theta])).mean()
        opt.zero_grad()
        loss.backward(retain_graph=True)
        opt.step()
        losses.append(loss.item())
    return losses
