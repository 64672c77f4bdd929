# %% [case]
# id: vae-moments-clamped-after-chunk
# source: toshikwa/gail-airl-ppo.pytorch#13 (clamp_ on a chunk), pytorch/pytorch#36403 (base written after split/chunk)
# family: multi_output_view
# fails: 4
# culprit: 2:7
# saved: -
# needed: 2:12
# effect: same
# observe: [kl.detach(), rec.detach()] + [p.grad.clone() for p in vae.parameters()]
# note: the moments are clamped in place through the parent tensor AFTER chunk() made mean and logvar: the views of a multi-output view function cannot follow. The error comes only where logvar is first used, in another method. Fix: clamp logvar out of place (or clamp before chunk).
# %%
import torch
import torch.nn as nn
torch.manual_seed(36403)
# %%
class DiagonalGaussian:
    def __init__(self, moments, deterministic=False):
        self.moments = moments
        self.mean, self.logvar = moments.chunk(2, dim=1)
        # exp() of the raw head overflowed in fp16
        half = moments.size(1) // 2
        moments[:, half:].clamp_(-30.0, 20.0)
        self.deterministic = deterministic

    @property
    def std(self):
        return torch.exp(0.5 * self.logvar)

    def sample(self):
        if self.deterministic:
            return self.mean
        return self.mean + self.std * torch.randn(self.mean.shape)

    def kl(self):
        return 0.5 * torch.sum(self.mean ** 2 + self.logvar.exp() - 1.0 - self.logvar, dim=[1, 2, 3])
# %%
class TinyAutoencoderKL(nn.Module):
    def __init__(self, ch=3, z=2, hidden=6):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(ch, hidden, 4, 2, 1), nn.SiLU())
        self.quant_conv = nn.Conv2d(hidden, 2 * z, 1)
        self.decoder = nn.Sequential(nn.ConvTranspose2d(z, hidden, 4, 2, 1), nn.SiLU(), nn.Conv2d(hidden, ch, 3, 1, 1))

    def encode(self, x):
        return DiagonalGaussian(self.quant_conv(self.encoder(x)))

    def forward(self, x):
        posterior = self.encode(x)
        return self.decoder(posterior.sample()), posterior

vae = TinyAutoencoderKL()
opt = torch.optim.Adam(vae.parameters(), lr=1e-3)
# %%
imgs = torch.rand(2, 3, 8, 8) * 2 - 1
recon, posterior = vae(imgs)
rec = (recon - imgs).abs().sum() / imgs.size(0)
kl = posterior.kl().mean()
opt.zero_grad()
(rec + 1e-3 * kl).backward()
opt.step()
print(f"rec {rec.item():.3f}  kl {kl.item():.3f}")
# %% [fixed 2]
class DiagonalGaussian:
    def __init__(self, moments, deterministic=False):
        self.moments = moments
        self.mean, self.logvar = moments.chunk(2, dim=1)
        # exp() of the raw head overflowed in fp16
        self.logvar = self.logvar.clamp(-30.0, 20.0)
        self.deterministic = deterministic

    @property
    def std(self):
        return torch.exp(0.5 * self.logvar)

    def sample(self):
        if self.deterministic:
            return self.mean
        return self.mean + self.std * torch.randn(self.mean.shape)

    def kl(self):
        return 0.5 * torch.sum(self.mean ** 2 + self.logvar.exp() - 1.0 - self.logvar, dim=[1, 2, 3])
