# %% [case]
# id: factorvae-tc-discriminator-after-vae-step
# source: https://github.com/YannDubs/disentangling-vae/issues/62
# family: modified
# fails: 4
# culprit: 3:31
# saved: 2:15
# needed: 3:38
# effect: same
# observe: [*log[-1]] + [p.detach().clone() for p in list(model.parameters()) + list(loss_f.discriminator.parameters())]
# note: d_z = D(latent_sample1) carries the graph of the encoder; the VAE's optimizer.step() in call_optimize changes the encoder before d_tc_loss is propagated through d_z. Worked silently before torch 1.5. The repository moved both step() calls to the end (which also puts d_tc_loss into the encoder's grad); the clean fix is to give the discriminator's own loss a detached latent sample.
# %%
import torch
from torch import nn, optim
from torch.nn import functional as F
torch.manual_seed(1234)
LATENT, IMG = 4, (1, 4, 4)
# %%
class VAE(nn.Module):
    """Encoder / decoder, shapes as in disvae but all linear."""
    def __init__(self, img_size=IMG, latent_dim=LATENT, hidden_dim=12):
        super().__init__()
        self.img_size, self.latent_dim = img_size, latent_dim
        n_pix = img_size[0] * img_size[1] * img_size[2]
        self.lin1 = nn.Linear(n_pix, hidden_dim)
        self.mu_logvar_gen = nn.Linear(hidden_dim, latent_dim * 2)
        self.dec1 = nn.Linear(latent_dim, hidden_dim)
        self.dec2 = nn.Linear(hidden_dim, n_pix)

    def encode(self, x):
        h = torch.relu(self.lin1(x.flatten(1)))
        # fc layer for log variance and mean
        mu_logvar = self.mu_logvar_gen(h)
        return mu_logvar.view(-1, self.latent_dim, 2).unbind(-1)

    def reparameterize(self, mean, logvar):
        return mean + torch.exp(0.5 * logvar) * torch.randn_like(mean)

    def forward(self, x):
        latent_dist = self.encode(x)
        z = self.reparameterize(*latent_dist)
        recon = torch.sigmoid(self.dec2(torch.relu(self.dec1(z))))
        return recon.view(-1, *self.img_size), latent_dist, z

    def sample_latent(self, x):
        return self.reparameterize(*self.encode(x))
# %%
def _permute_dims(latent_sample):
    perm = torch.zeros_like(latent_sample)
    batch_size, dim_z = perm.size()
    for z in range(dim_z):
        pi = torch.randperm(batch_size)
        perm[:, z] = latent_sample[pi, z]
    return perm


class FactorKLoss:
    """Two batches per iteration, the loss owns the discriminator and its optimizer."""
    def __init__(self, gamma=10., disc_kwargs=dict(hidden=8), optim_kwargs=dict(lr=5e-5, betas=(0.5, 0.9))):
        self.gamma = gamma
        h = disc_kwargs["hidden"]
        self.discriminator = nn.Sequential(nn.Linear(LATENT, h), nn.LeakyReLU(0.2), nn.Linear(h, 2))
        self.optimizer_d = optim.Adam(self.discriminator.parameters(), **optim_kwargs)

    def call_optimize(self, data, model, optimizer, storer=None):
        data1, data2 = data.split(data.size(0) // 2)

        recon_batch, (mean, logvar), latent_sample1 = model(data1)
        rec_loss = F.binary_cross_entropy(recon_batch, data1, reduction="sum") / len(data1)
        kl_loss = 0.5 * (-1 - logvar + mean.pow(2) + logvar.exp()).mean(dim=0).sum()
        d_z = self.discriminator(latent_sample1)
        # We want log(p_true/p_false). If not using logistic regression but softmax: difference of the logits
        tc_loss = (d_z[:, 0] - d_z[:, 1]).mean()
        vae_loss = rec_loss + kl_loss + self.gamma * tc_loss

        optimizer.zero_grad()
        vae_loss.backward(retain_graph=True)
        optimizer.step()

        # Discriminator loss: second sample of the latent distribution
        z_perm = _permute_dims(model.sample_latent(data2)).detach()
        ones = torch.ones(len(data1), dtype=torch.long)
        d_tc_loss = 0.5 * (F.cross_entropy(d_z, ones * 0) + F.cross_entropy(self.discriminator(z_perm), ones))
        self.optimizer_d.zero_grad()
        d_tc_loss.backward()
        self.optimizer_d.step()

        if storer is not None:
            storer.append((vae_loss.item(), d_tc_loss.item()))
        return vae_loss
# %%
model = VAE()
loss_f = FactorKLoss()
optimizer = optim.Adam(model.parameters(), lr=5e-4)
log = []
for it in range(3):
    loss_f.call_optimize(torch.rand(8, *IMG), model, optimizer, storer=log)
print("last: vae %.3f  d_tc %.3f" % log[-1])
# %% [fixed 3]
def _permute_dims(latent_sample):
    perm = torch.zeros_like(latent_sample)
    batch_size, dim_z = perm.size()
    for z in range(dim_z):
        pi = torch.randperm(batch_size)
        perm[:, z] = latent_sample[pi, z]
    return perm


class FactorKLoss:
    """Two batches per iteration, the loss owns the discriminator and its optimizer."""
    def __init__(self, gamma=10., disc_kwargs=dict(hidden=8), optim_kwargs=dict(lr=5e-5, betas=(0.5, 0.9))):
        self.gamma = gamma
        h = disc_kwargs["hidden"]
        self.discriminator = nn.Sequential(nn.Linear(LATENT, h), nn.LeakyReLU(0.2), nn.Linear(h, 2))
        self.optimizer_d = optim.Adam(self.discriminator.parameters(), **optim_kwargs)

    def call_optimize(self, data, model, optimizer, storer=None):
        data1, data2 = data.split(data.size(0) // 2)

        recon_batch, (mean, logvar), latent_sample1 = model(data1)
        rec_loss = F.binary_cross_entropy(recon_batch, data1, reduction="sum") / len(data1)
        kl_loss = 0.5 * (-1 - logvar + mean.pow(2) + logvar.exp()).mean(dim=0).sum()
        d_z = self.discriminator(latent_sample1)
        # We want log(p_true/p_false). If not using logistic regression but softmax: difference of the logits
        tc_loss = (d_z[:, 0] - d_z[:, 1]).mean()
        vae_loss = rec_loss + kl_loss + self.gamma * tc_loss

        optimizer.zero_grad()
        vae_loss.backward()
        optimizer.step()

        # Discriminator loss: second sample of the latent distribution
        z_perm = _permute_dims(model.sample_latent(data2)).detach()
        ones = torch.ones(len(data1), dtype=torch.long)
        d_tc_loss = 0.5 * (F.cross_entropy(self.discriminator(latent_sample1.detach()), ones * 0) + F.cross_entropy(self.discriminator(z_perm), ones))
        self.optimizer_d.zero_grad()
        d_tc_loss.backward()
        self.optimizer_d.step()

        if storer is not None:
            storer.append((vae_loss.item(), d_tc_loss.item()))
        return vae_loss
