# %% [case]
# id: gan-sensor-traces
# source: blog.51cto.com u_16213604/11952018 (Chinese article: in-place error in GAN training, computation graph and optimizer step)
# family: modified
# fails: 4
# culprit: 4:12
# saved: 4:8
# needed: 4:17
# effect: other
# observe: [history, [p.detach().clone() for p in generator.parameters()]]
# note: score_fake is made with the weights that opt_d.step() then changes in place; the generator loss goes back through that old graph. Fix: train the discriminator on fake.detach(), and score the fake traces again for the generator after the step.
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(7)
LATENT, LENGTH, BATCH = 6, 16, 24


def real_traces(n):
    """Noisy sine traces of a vibration sensor."""
    phase = torch.rand(n, 1) * 6.28
    t = torch.linspace(0, 6.28, LENGTH)
    return torch.sin(t + phase) + 0.05 * torch.randn(n, LENGTH)
# %%
generator = nn.Sequential(nn.Linear(LATENT, 32), nn.ReLU(), nn.Linear(32, LENGTH), nn.Tanh())
discriminator = nn.Sequential(nn.Linear(LENGTH, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
opt_g = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.5, 0.999))
# %%
def bce(score, is_real):
    target = torch.full_like(score, 1.0 if is_real else 0.0)
    return F.binary_cross_entropy_with_logits(score, target)
# %%
history = []
for it in range(5):
    real = real_traces(BATCH)
    fake = generator(torch.randn(BATCH, LATENT))

    # discriminator
    score_real = discriminator(real)
    score_fake = discriminator(fake)
    loss_d = bce(score_real, True) + bce(score_fake, False)
    opt_d.zero_grad()
    loss_d.backward(retain_graph=True)
    opt_d.step()

    # generator
    loss_g = bce(score_fake, True)
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    history.append((loss_d.item(), loss_g.item()))
    print(f"{it}: D {loss_d.item():.3f}  G {loss_g.item():.3f}")
# %% [fixed 4]
history = []
for it in range(5):
    real = real_traces(BATCH)
    fake = generator(torch.randn(BATCH, LATENT))

    # discriminator
    score_real = discriminator(real)
    score_fake = discriminator(fake.detach())
    loss_d = bce(score_real, True) + bce(score_fake, False)
    opt_d.zero_grad()
    loss_d.backward()
    opt_d.step()

    # generator
    loss_g = bce(discriminator(fake), True)
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    history.append((loss_d.item(), loss_g.item()))
    print(f"{it}: D {loss_d.item():.3f}  G {loss_g.item():.3f}")
