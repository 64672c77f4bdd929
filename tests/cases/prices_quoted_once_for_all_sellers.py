# %% [case]
# id: prices-quoted-once-for-all-sellers
# source: a textbook mistake in other words
# family: modified
# fails: 3
# culprit: 2:8
# saved: 2:2
# needed: 2:7
# effect: other
# observe: [p.detach().clone() for s in sellers for p in s.pricing.parameters()]
# note: the sellers' prices are made once and each seller then ascends its own profit. Fix: quote the prices again before every seller's update.
# %%
import torch
from torch import nn
from dataclasses import dataclass

@dataclass
class Seller:
    pricing: nn.Module
    profit: nn.Module
    opt: torch.optim.Optimizer

def make_seller(n_sellers, n_costs=3):
    pricing = nn.Sequential(nn.Linear(n_costs, 6), nn.Sigmoid(), nn.Linear(6, 1))
    profit = nn.Sequential(nn.Linear(n_sellers, 6), nn.Sigmoid(), nn.Linear(6, 1))
    return Seller(pricing, profit, torch.optim.SGD(pricing.parameters(), lr=0.2))
# %%
def quote(sellers, costs):
    return torch.hstack([s.pricing(c) for s, c in zip(sellers, costs)])

def improve(seller, prices):
    loss = -seller.profit(prices).mean()
    seller.opt.zero_grad()
    loss.backward(retain_graph=True)
    seller.opt.step()
    return -loss.item()

def market_round(sellers, costs):
    prices = quote(sellers, costs)
    return [improve(s, prices) for s in sellers]
# %%
torch.manual_seed(1)
sellers = [make_seller(3) for _ in range(3)]
costs = torch.rand(3, 12, 3)
for day in range(2):
    print(day, market_round(sellers, costs))
# %% [fixed 2]
def quote(sellers, costs):
    return torch.hstack([s.pricing(c) for s, c in zip(sellers, costs)])

def improve(seller, prices):
    loss = -seller.profit(prices).mean()
    seller.opt.zero_grad()
    loss.backward()
    seller.opt.step()
    return -loss.item()

def market_round(sellers, costs):
    return [improve(s, quote(sellers, costs)) for s in sellers]
