# %% [case]
# id: metric-moving-average-dict
# source: a textbook mistake in other words
# family: second_backward
# fails: 3
# culprit: -
# saved: -
# needed: 3:6
# effect: other
# observe: ([p.detach().clone() for p in net.parameters()], float(metrics["ema"]))
# note: a moving average in a dict normalises the loss
# %%
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Linear(3, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)
# %%
metrics = {"ema": torch.tensor(1.0)}
def record(m, v): m["ema"] = 0.9 * m["ema"] + 0.1 * v
# %%
for x in torch.randn(3, 4, 3):
    loss = net(x).pow(2).mean()
    record(metrics, loss)
    opt.zero_grad()

    (loss / metrics["ema"]).backward()
    opt.step()
# %% [fixed 2]
metrics = {"ema": torch.tensor(1.0)}
def record(m, v): m["ema"] = 0.9 * m["ema"].detach() + 0.1 * v
