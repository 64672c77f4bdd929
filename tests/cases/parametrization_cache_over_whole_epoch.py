# %% [case]
# id: parametrization-cache-over-whole-epoch
# source: pytorch issue 71062 (parametrize.cached and several backwards within one cached context)
# family: second_backward
# fails: 3
# culprit: 3:8 | 1:19
# saved: 1:8
# needed: 3:8
# effect: same
# observe: [trace, [p.detach().clone() for p in net.parameters()]]
# note: parametrize.cached() is opened once around the epochs: the computed weight, with its graph, is kept, and the second batch goes back through it. Fix: open the cache inside the loop, around one forward.
# %%
import torch
import torch.nn as nn
import torch.nn.utils.parametrize as parametrize

class Positive(nn.Module):
    """Price sensitivities must not become negative."""
    def forward(self, raw):
        return nn.functional.softplus(raw)

class SharedDemand(nn.Module):
    def __init__(self, products=4):
        super().__init__()
        self.price = nn.Linear(products, products, bias=False)
        parametrize.register_parametrization(self.price, "weight", Positive())
        self.base = nn.Parameter(torch.zeros(products))

    def forward(self, today, tomorrow):
        # the same weight is used twice, for both days
        return self.base - self.price(today), self.base - self.price(tomorrow)
# %%
torch.manual_seed(9)
prices = torch.rand(40, 4) * 2
true = torch.rand(4, 4)
demand = 3 - prices @ true.T + 0.05 * torch.randn(40, 4)
pairs = list(zip(range(0, 38, 2), range(1, 39, 2)))

net = SharedDemand()
opt = torch.optim.SGD(net.parameters(), lr=0.05)
# %%
trace = []
with parametrize.cached():
    for epoch in range(2):
        for i, j in pairs:
            a, b = net(prices[i], prices[j])
            loss = (a - demand[i]).pow(2).mean() + (b - demand[j]).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        trace.append(loss.item())
print(trace)
# %% [fixed 3]
trace = []
for epoch in range(2):
    for i, j in pairs:
        with parametrize.cached():
            a, b = net(prices[i], prices[j])
        loss = (a - demand[i]).pow(2).mean() + (b - demand[j]).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    trace.append(loss.item())
print(trace)
