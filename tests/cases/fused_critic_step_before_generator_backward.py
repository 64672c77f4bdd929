# %% [case]
# id: fused-critic-step-before-generator-backward
# source: GAN with fused Adam, generator loss made before the discriminator's step
# family: silent
# fails: -
# culprit: 3:6
# saved: 3:2
# needed: 3:8
# effect: same
# observe: [p.grad.clone() for p in G.parameters()]
# note: the fused optimizer changes D's weights without a version bump after D(fake) saved them. Fix: generator first, D after it.
# %%
import torch
import torch.nn as nn
torch.manual_seed(0)
G = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
D = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
bce = nn.BCEWithLogitsLoss()
opt_g = torch.optim.Adam(G.parameters(), lr=0.05, fused=True)
opt_d = torch.optim.Adam(D.parameters(), lr=0.05, fused=True)
# %%
real = torch.randn(16, 2) * 0.1 + 1
z = torch.randn(16, 2)
# %%
fake = G(z)
g_loss = bce(D(fake), torch.ones(16, 1))
d_loss = bce(D(real), torch.ones(16, 1)) + bce(D(fake.detach()), torch.zeros(16, 1))
opt_d.zero_grad()
d_loss.backward()
opt_d.step()
opt_g.zero_grad()
g_loss.backward()
opt_g.step()
# %% [fixed 3]
fake = G(z)
g_loss = bce(D(fake), torch.ones(16, 1))
d_loss = bce(D(real), torch.ones(16, 1)) + bce(D(fake.detach()), torch.zeros(16, 1))
opt_g.zero_grad()
g_loss.backward()
opt_g.step()
opt_d.zero_grad()
d_loss.backward()
opt_d.step()
