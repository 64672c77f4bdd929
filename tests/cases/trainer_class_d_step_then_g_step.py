# %% [case]
# id: trainer-class-d-step-then-g-step
# source: GAN trainer class, one method for each update, predictions kept on the trainer
# family: modified
# fails: 3
# culprit: 1:23
# saved: 1:17
# needed: 1:29
# effect: other
# observe: [p.detach().clone() for p in t.D.parameters()]
# note: pred_fake was computed by D before d_step() stepped D; g_step() goes back through it. Fix: evaluate D(fake) again in g_step.
# %%
import torch
from torch import nn
import torch.nn.functional as F

class Trainer:
    def __init__(self, nz=3, nx=5, lr=1e-2):
        self.G = nn.Sequential(nn.Linear(nz, 8), nn.ReLU(), nn.Linear(8, nx))
        self.D = nn.Sequential(nn.Linear(nx, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
        self.opt_g = torch.optim.Adam(self.G.parameters(), lr=lr)
        self.opt_d = torch.optim.Adam(self.D.parameters(), lr=lr)
        self.nz = nz

    def forward(self, real):
        self.real = real
        self.fake = self.G(torch.randn(len(real), self.nz))
        self.pred_real = self.D(real)
        self.pred_fake = self.D(self.fake)

    def d_step(self):
        self.opt_d.zero_grad()
        loss = F.softplus(self.pred_fake).mean() + F.softplus(-self.pred_real).mean()
        loss.backward(retain_graph=True)
        self.opt_d.step()
        return loss.item()

    def g_step(self):
        self.opt_g.zero_grad()
        loss = F.softplus(-self.pred_fake).mean() + 0.1 * self.fake.pow(2).mean()
        loss.backward()
        self.opt_g.step()
        return loss.item()
# %%
torch.manual_seed(0)
t = Trainer()
loader = [torch.randn(4, 5) for _ in range(2)]
# %%
for real in loader:
    t.forward(real)
    print(t.d_step(), t.g_step())
# %% [fixed 1]
import torch
from torch import nn
import torch.nn.functional as F

class Trainer:
    def __init__(self, nz=3, nx=5, lr=1e-2):
        self.G = nn.Sequential(nn.Linear(nz, 8), nn.ReLU(), nn.Linear(8, nx))
        self.D = nn.Sequential(nn.Linear(nx, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
        self.opt_g = torch.optim.Adam(self.G.parameters(), lr=lr)
        self.opt_d = torch.optim.Adam(self.D.parameters(), lr=lr)
        self.nz = nz

    def forward(self, real):
        self.real = real
        self.fake = self.G(torch.randn(len(real), self.nz))
        self.pred_real = self.D(real)
        self.pred_fake = self.D(self.fake)

    def d_step(self):
        self.opt_d.zero_grad()
        loss = F.softplus(self.pred_fake).mean() + F.softplus(-self.pred_real).mean()
        loss.backward(retain_graph=True)
        self.opt_d.step()
        return loss.item()

    def g_step(self):
        self.opt_g.zero_grad()
        loss = F.softplus(-self.D(self.fake)).mean() + 0.1 * self.fake.pow(2).mean()
        loss.backward()
        self.opt_g.step()
        return loss.item()
