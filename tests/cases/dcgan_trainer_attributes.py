# %% [case]
# id: dcgan-trainer-attributes
# source: a textbook mistake in other words
# family: second_backward
# fails: 3
# culprit: -
# saved: -
# needed: 2:17
# effect: same
# observe: [p.detach().clone() for p in [*gan.gen.parameters(), *gan.dis.parameters()]]
# note: a trainer class keeps the fake on itself for both of its steps
# %%
import torch
from torch import nn
torch.manual_seed(0)
# %%
class GAN:
    def __init__(self):
        self.gen, self.dis = nn.Linear(2, 3), nn.Linear(3, 1)
        self.opt_g = torch.optim.Adam(self.gen.parameters())
        self.opt_d = torch.optim.Adam(self.dis.parameters())
    def sample(self):
        self.images = self.gen(torch.randn(4, 2))
    def train_dis(self, real):
        self.opt_d.zero_grad()
        loss = self.dis(self.images).mean() - self.dis(real).mean()
        loss.backward()
        self.opt_d.step()
        return loss.item()
    def train_gen(self):
        self.opt_g.zero_grad()
        loss = -self.dis(self.images).mean()
        loss.backward()
        self.opt_g.step()
        return loss.item()
# %%
gan = GAN()
for _ in range(2):
    gan.sample()
    gan.train_dis(torch.randn(4, 3))
    gan.train_gen()
# %% [fixed 2]
class GAN:
    def __init__(self):
        self.gen, self.dis = nn.Linear(2, 3), nn.Linear(3, 1)
        self.opt_g = torch.optim.Adam(self.gen.parameters())
        self.opt_d = torch.optim.Adam(self.dis.parameters())
    def sample(self):
        self.images = self.gen(torch.randn(4, 2))
    def train_dis(self, real):
        self.opt_d.zero_grad()
        loss = self.dis(self.images.detach()).mean() - self.dis(real).mean()
        loss.backward()
        self.opt_d.step()
        return loss.item()
    def train_gen(self):
        self.opt_g.zero_grad()
        loss = -self.dis(self.images).mean()
        loss.backward()
        self.opt_g.step()
        return loss.item()
