# %% [case]
# id: generated-weights-rescaled-by-fan-in
# source: OpenNMT/OpenNMT-py#2303 (output of SplitBackward0 is modified), in a hypernetwork
# family: multi_output_view
# fails: 3
# culprit: 1:24
# saved: -
# needed: -
# effect: same
# observe: [loss.item(), hyper.body[2].weight.grad.clone(), hyper.codes.weight.grad.clone()]
# note: each piece of torch.split is a view of the generated vector; scaling a piece in place is forbidden. Fix: scale out of place, piece = piece / sqrt(fan_in).
# %%
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

SHAPES = {'w1': (16, 1), 'b1': (16,), 'w2': (16, 16), 'b2': (16,), 'w3': (1, 16), 'b3': (1,)}


class HyperNetwork(nn.Module):
    """one code per task -> all weights of a small sine regressor"""

    def __init__(self, tasks, code=8):
        super().__init__()
        total = sum(math.prod(s) for s in SHAPES.values())
        self.codes = nn.Embedding(tasks, code)
        self.body = nn.Sequential(nn.Linear(code, 32), nn.ELU(), nn.Linear(32, total))

    def forward(self, task):
        flat = self.body(self.codes(task))
        pieces = torch.split(flat, [math.prod(s) for s in SHAPES.values()])
        weights = {}
        for (name, shape), piece in zip(SHAPES.items(), pieces):
            if name.startswith('w'):
                piece.div_(math.sqrt(shape[1]))
            weights[name] = piece.view(shape)
        return weights
# %%
def regressor(x, w):
    h = torch.sin(F.linear(x, w['w1'], w['b1']))
    h = torch.sin(F.linear(h, w['w2'], w['b2']))
    return F.linear(h, w['w3'], w['b3'])


def task_batch(task, n=20):
    x = torch.rand(n, 1) * 4 - 2
    return x, torch.sin(x * (1 + 0.5 * task) + task)
# %%
torch.manual_seed(13)
hyper = HyperNetwork(tasks=3)
optimizer = torch.optim.Adam(hyper.parameters(), lr=2e-3)
for step in range(6):
    loss = 0.0
    for task in range(3):
        x, y = task_batch(task)
        loss = loss + F.mse_loss(regressor(x, hyper(torch.tensor(task))), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
# %% [fixed 1]
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

SHAPES = {'w1': (16, 1), 'b1': (16,), 'w2': (16, 16), 'b2': (16,), 'w3': (1, 16), 'b3': (1,)}


class HyperNetwork(nn.Module):
    """one code per task -> all weights of a small sine regressor"""

    def __init__(self, tasks, code=8):
        super().__init__()
        total = sum(math.prod(s) for s in SHAPES.values())
        self.codes = nn.Embedding(tasks, code)
        self.body = nn.Sequential(nn.Linear(code, 32), nn.ELU(), nn.Linear(32, total))

    def forward(self, task):
        flat = self.body(self.codes(task))
        pieces = torch.split(flat, [math.prod(s) for s in SHAPES.values()])
        weights = {}
        for (name, shape), piece in zip(SHAPES.items(), pieces):
            if name.startswith('w'):
                piece = piece / math.sqrt(shape[1])
            weights[name] = piece.view(shape)
        return weights
