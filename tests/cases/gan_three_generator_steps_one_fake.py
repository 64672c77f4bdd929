# %% [case]
# id: gan-three-generator-steps-one-fake
# source: pytorch/pytorch#39141 (comment of 2021-03-15: single-image GAN, three generator steps in a row)
# family: modified
# fails: 4
# culprit: 4:14
# saved: 2:10
# needed: 4:13
# effect: other
# observe: [p.detach().clone() for p in generator.parameters()] + [p.detach().clone() for p in critic.parameters()]
# note: fake is generated once and used in every generator step; after the first opt_g.step() the weights that its graph saved are changed. Fix: generate the fake again inside the generator loop (and no retain_graph).
# %%
import torch
from torch import nn

torch.manual_seed(39)
# one long height profile of a mountain ridge is the whole data set
ridge = torch.cumsum(torch.randn(1, 1, 64) * 0.1, dim=-1)
# %%
class ProfileGenerator(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.head = nn.Conv1d(1, width, 3, padding=1)
        self.act = nn.LeakyReLU(0.2)
        self.tail = nn.Conv1d(width, 1, 3, padding=1)

    def forward(self, noise, prev):
        h = self.act(self.head(noise + prev))
        return self.tail(h) + prev

class PatchCritic(nn.Sequential):
    def __init__(self, width=8):
        super().__init__(nn.Conv1d(1, width, 5), nn.LeakyReLU(0.2), nn.Conv1d(width, 1, 5))

generator, critic = ProfileGenerator(), PatchCritic()
opt_g = torch.optim.Adam(generator.parameters(), lr=5e-4, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(critic.parameters(), lr=5e-4, betas=(0.5, 0.999))
# %%
D_STEPS, G_STEPS, ALPHA = 3, 3, 10.0
prev = torch.zeros_like(ridge)
z_opt = torch.randn_like(ridge)
log = []
# %%
for epoch in range(2):
    for _ in range(D_STEPS):
        opt_d.zero_grad()
        fake = generator(torch.randn_like(ridge), prev)
        err_d = critic(fake.detach()).mean() - critic(ridge).mean()
        err_d.backward()
        opt_d.step()

    for _ in range(G_STEPS):
        opt_g.zero_grad()
        err_g = -critic(fake).mean()
        rec = ALPHA * nn.functional.mse_loss(generator(z_opt, prev), ridge)
        (err_g + rec).backward(retain_graph=True)
        opt_g.step()
    log.append((err_d.item(), err_g.item(), rec.item()))
print(log)
# %% [fixed 4]
for epoch in range(2):
    for _ in range(D_STEPS):
        opt_d.zero_grad()
        fake = generator(torch.randn_like(ridge), prev)
        err_d = critic(fake.detach()).mean() - critic(ridge).mean()
        err_d.backward()
        opt_d.step()

    for _ in range(G_STEPS):
        opt_g.zero_grad()
        fake = generator(torch.randn_like(ridge), prev)
        err_g = -critic(fake).mean()
        rec = ALPHA * nn.functional.mse_loss(generator(z_opt, prev), ridge)
        (err_g + rec).backward()
        opt_g.step()
    log.append((err_d.item(), err_g.item(), rec.item()))
print(log)
