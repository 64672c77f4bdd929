# %% [case]
# id: adaptive-computation-running-mask
# source: adaptive computation time, the mask of running samples updated in place
# family: modified
# fails: 3
# culprit: 1:19
# saved: 1:16 | 1:18
# needed: 3:3
# effect: same
# observe: [p.grad.clone() for p in act.parameters()]
# note: torch.where saved the bool mask, `running &= ...` changes it. Fix: running = running & ...
# %%
import torch
from torch import nn

class ACT(nn.Module):
    def __init__(self, d=4, max_steps=4):
        super().__init__()
        self.cell, self.halt = nn.GRUCell(d, d), nn.Linear(d, 1)
        self.max_steps = max_steps

    def forward(self, x):
        h = torch.zeros_like(x)
        total = torch.zeros(len(x))
        running = torch.ones(len(x), dtype=torch.bool)
        for n in range(self.max_steps):
            new = self.cell(x, h)
            h = torch.where(running[:, None], new, h)
            p = torch.sigmoid(self.halt(h)).squeeze(-1)
            total = total + torch.where(running, p, torch.zeros_like(p))
            running &= total < 0.99
            if not running.any(): break
        return h, total
# %%
torch.manual_seed(0)
act = ACT()
x, y = torch.randn(6, 4), torch.randn(6, 4)
# %%
out, ponder = act(x)
loss = (out - y).pow(2).mean() + 1e-2 * ponder.mean()
loss.backward()
# %% [fixed 1]
import torch
from torch import nn

class ACT(nn.Module):
    def __init__(self, d=4, max_steps=4):
        super().__init__()
        self.cell, self.halt = nn.GRUCell(d, d), nn.Linear(d, 1)
        self.max_steps = max_steps

    def forward(self, x):
        h = torch.zeros_like(x)
        total = torch.zeros(len(x))
        running = torch.ones(len(x), dtype=torch.bool)
        for n in range(self.max_steps):
            new = self.cell(x, h)
            h = torch.where(running[:, None], new, h)
            p = torch.sigmoid(self.halt(h)).squeeze(-1)
            total = total + torch.where(running, p, torch.zeros_like(p))
            running = running & (total < 0.99)
            if not running.any(): break
        return h, total
