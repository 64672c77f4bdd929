# %% [case]
# id: adversarial-autoencoder-prior
# source: github.com/mattans/AgeProgression issue 23 (adversarial autoencoder: the discriminator of z and its prior; detach z for the discriminator)
# family: modified
# fails: 4
# culprit: 4:12
# saved: 4:8
# needed: 4:18
# effect: other
# observe: [curves, [p.detach().clone() for p in encoder.parameters()], [p.detach().clone() for p in d_z.parameters()]]
# note: the encoder's adversarial loss uses the scores made before dz_optimizer.step() changed the discriminator in place. Fix: the discriminator sees code.detach(), and the code is scored again for the encoder after the step.
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(31)
faces = torch.rand(40, 30)
CODE = 4
# %%
encoder = nn.Sequential(nn.Linear(30, 20), nn.ReLU(), nn.Linear(20, CODE))
decoder = nn.Sequential(nn.Linear(CODE, 20), nn.ReLU(), nn.Linear(20, 30), nn.Sigmoid())
d_z = nn.Sequential(nn.Linear(CODE, 16), nn.ReLU(), nn.Linear(16, 1))

eg_optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
dz_optimizer = torch.optim.Adam(d_z.parameters(), lr=1e-3)
bce = F.binary_cross_entropy_with_logits
# %%
class Curves(dict):
    def add(self, **values):
        for name, value in values.items():
            self.setdefault(name, []).append(value.item())


curves = Curves()
# %%
for epoch in range(2):
    for batch in faces.split(20):
        code = encoder(batch)
        prior = 2 * torch.rand_like(code) - 1

        # discriminator on the code: prior is real, code is fake
        score_prior = d_z(prior)
        score_code = d_z(code)
        dz_loss = bce(score_prior, torch.ones_like(score_prior)) + bce(score_code, torch.zeros_like(score_code))
        dz_optimizer.zero_grad()
        dz_loss.backward(retain_graph=True)
        dz_optimizer.step()

        # encoder and decoder: reconstruct, and fool the discriminator
        rebuilt = decoder(code)
        eg_loss = F.l1_loss(rebuilt, batch) + 0.1 * bce(score_code, torch.ones_like(score_code))
        eg_optimizer.zero_grad()
        eg_loss.backward()
        eg_optimizer.step()
        curves.add(dz=dz_loss, eg=eg_loss)
print(curves)
# %% [fixed 4]
for epoch in range(2):
    for batch in faces.split(20):
        code = encoder(batch)
        prior = 2 * torch.rand_like(code) - 1

        # discriminator on the code: prior is real, code is fake
        score_prior = d_z(prior)
        score_code = d_z(code.detach())
        dz_loss = bce(score_prior, torch.ones_like(score_prior)) + bce(score_code, torch.zeros_like(score_code))
        dz_optimizer.zero_grad()
        dz_loss.backward()
        dz_optimizer.step()

        # encoder and decoder: reconstruct, and fool the discriminator
        rebuilt = decoder(code)
        score_code = d_z(code)
        eg_loss = F.l1_loss(rebuilt, batch) + 0.1 * bce(score_code, torch.ones_like(score_code))
        eg_optimizer.zero_grad()
        eg_loss.backward()
        eg_optimizer.step()
        curves.add(dz=dz_loss, eg=eg_loss)
print(curves)
