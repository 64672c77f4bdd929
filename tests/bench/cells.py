"""The cells that are measured: four kinds of training that run, and failures as people write them."""

from __future__ import annotations

MLP = (
    """
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
net = nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(64, 64), nn.Tanh())], nn.Linear(64, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
x, y = torch.randn(32, 64), torch.randn(32, 1)
""",
    """
for step in range({n}):
    opt.zero_grad()
    loss = ((net(x) - y) ** 2).mean()
    loss.backward()
    opt.step()
""",
)

CONV = (
    """
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
blocks = [(3, 32), (32, 32), (32, 32), (32, 32)]
net = nn.Sequential(*[m for i, o in blocks for m in (nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())])
opt = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9)
x = torch.randn(8, 3, 32, 32)
""",
    """
for step in range({n}):
    opt.zero_grad()
    loss = net(x).mean() ** 2
    loss.backward()
    opt.step()
""",
)

LSTM = (
    """
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
cell = nn.LSTMCell(32, 64)
head = nn.Linear(64, 1)
opt = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=1e-2)
x, y = torch.randn(30, 16, 32), torch.randn(16, 1)
""",
    """
for step in range({n}):
    opt.zero_grad()
    h, c = torch.zeros(16, 64), torch.zeros(16, 64)
    for t in range(30):
        h, c = cell(x[t], (h, c))
    loss = ((head(h) - y) ** 2).mean()
    loss.backward()
    opt.step()
""",
)

TRANSFORMER = (
    """
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
block = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
opt = torch.optim.AdamW(block.parameters(), lr=1e-3)
x = torch.randn(8, 48, 128)
""",
    """
for step in range({n}):
    opt.zero_grad()
    loss = block(x).pow(2).mean()
    loss.backward()
    opt.step()
""",
)

# name: (the two cells, steps of about 0.2 s, at most so many times the plain rerun, whether operations are small)
RUNS = {
    "MLP with Adam": (MLP, 100, 2.0, True),
    "conv net": (CONV, 15, 1.15, False),
    "LSTMCell loop": (LSTM, 30, 2.0, True),
    "transformer block": (TRANSFORMER, 30, 1.5, False),
}

# The failure that is over at once: what is imported for a first one, and what a report costs by itself.
SMALL = ("import torch\nw = torch.ones(2, requires_grad=True)", "y = w.exp()\ny += 1\ny.sum().backward()")

# Failures as people write them, each with the steps that make its cell take 0.2 to 1 s until it fails.
_NETS = """
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
"""

FAILURES = {
    "`+=` on an activation, at the first step": (
        _NETS
        + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Conv2d(3, 64, 3, padding=1), nn.Conv2d(64, 64, 3, padding=1), nn.Linear(64, 10)
    def forward(self, x):
        for _ in range({n}):
            h = torch.sigmoid(self.first(x))
            h += self.second(h)
            h = torch.relu(h)
        return self.head(h.mean((2, 3)))
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
x, y = torch.randn(8, 3, 48, 48), torch.randint(10, (8,))
""",
        """
for step in range(5):
    opt.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
""",
        12,
    ),
    "two updates of a GAN, at the first step": (
        _NETS
        + """
G = nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(512, 512), nn.LeakyReLU(0.2))])
D = nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(512, 512), nn.LeakyReLU(0.2))], nn.Linear(512, 1))
optG, optD = torch.optim.Adam(G.parameters(), lr=1e-4), torch.optim.Adam(D.parameters(), lr=1e-4)
real, noise = torch.randn({n}, 512), torch.randn({n}, 512)
""",
        """
for step in range(10):
    fake = G(noise)
    out = D(fake)
    lossD = F.softplus(-D(real)).mean() + F.softplus(D(fake.detach())).mean()
    lossG = F.softplus(-out).mean()
    optD.zero_grad()
    lossD.backward()
    optD.step()
    optG.zero_grad()
    lossG.backward()
    optG.step()
""",
        1024,
    ),
    "a hidden state carried on, at the second step": (
        _NETS
        + """
cell = nn.LSTMCell(32, 64)
head = nn.Linear(64, 1)
opt = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=1e-2)
data, target = torch.randn(10, {n}, 16, 32), torch.randn(10, 16, 1)
""",
        """
h, c = torch.zeros(16, 64), torch.zeros(16, 64)
for x, y in zip(data, target):
    for t in range(len(x)):
        h, c = cell(x[t], (h, c))
    loss = ((head(h) - y) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
        500,
    ),
    "a mask written late, after many steps": (
        _NETS
        + """
net = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
x, y = torch.randn(32, 64), torch.randn(32, 64)
""",
        """
for step in range({n} + 200):
    out = net(x)
    if step >= {n}:
        out[out > 0.9] = 0.9
        out.mul_(0.5)
    loss = ((out - y) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
        600,
    ),
    "at step 3 of 10,000": (
        _NETS
        + """
net = nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh())
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
x, y = torch.randn({n}, 256), torch.randn({n}, 256)
""",
        """
for step in range(10_000):
    out = net(x)
    if step >= 3:
        out *= 0.5
    loss = ((out - y) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
        6144,
    ),
}
