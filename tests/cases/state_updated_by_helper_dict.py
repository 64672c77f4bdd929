# %% [case]
# id: state-updated-by-helper-dict
# source: a textbook mistake in other words
# family: second_backward
# fails: 3
# culprit: -
# saved: -
# needed: 3:5
# effect: truncates
# observe: [p.detach().clone() for p in core.parameters()]
# note: two states that a helper puts into a dict by update()
# %%
import torch
from torch import nn
torch.manual_seed(0)
core = nn.LSTMCell(3, 4); opt = torch.optim.SGD(core.parameters(), lr=0.1)
# %%
def roll(ctx, x):
    h, c = core(x, (ctx["h"], ctx["c"]))
    ctx.update(h=h, c=c)
    return h
ctx = dict(h=torch.zeros(2, 4), c=torch.zeros(2, 4))
# %%
for x in torch.randn(4, 2, 3):
    y = roll(ctx, x)
    l = (y - 1).pow(2).mean()
    opt.zero_grad()
    l.backward()
    opt.step()
# %% [fixed 2]
def roll(ctx, x):
    h, c = core(x, (ctx["h"].detach(), ctx["c"].detach()))
    ctx.update(h=h, c=c)
    return h
ctx = dict(h=torch.zeros(2, 4), c=torch.zeros(2, 4))
