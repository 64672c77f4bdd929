# %% [case]
# id: vqtorch-codebook-trained-inside-forward
# source: https://github.com/minyoungg/vqtorch/issues/3
# family: second_backward
# fails: 4
# culprit: 2:23
# saved: 2:19
# needed: 4:8
# effect: truncates
# observe: [loss.detach(), model.vq.codebook.weight.detach().clone()] + [p.grad.clone() for p in model.encoder.parameters()]
# note: with inplace_optimizer the quantizer trains its codebook by an own backward inside forward; the commitment loss returned to the trainer still hangs on the same lookup. The maintainer: each forward in training mode updates the codebook. Fix: the lookup used after that is detached. (Condensed; the thread shows no code.)
# %%
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(3)
# %%
class VectorQuant(nn.Module):
    def __init__(self, feature_size, num_codes, beta=0.25, inplace_optimizer=None):
        super().__init__()
        self.codebook = nn.Embedding(num_codes, feature_size)
        self.beta = beta
        self.inplace_codebook_optimizer = None
        if inplace_optimizer is not None:
            self.inplace_codebook_optimizer = inplace_optimizer(self.codebook.parameters())

    @torch.no_grad()
    def get_indices(self, z):
        return torch.cdist(z, self.codebook.weight).argmin(-1)

    def compute_loss(self, z_e, z_q):
        return self.beta * F.mse_loss(z_e, z_q)

    def forward(self, z):
        q = self.get_indices(z)
        z_q = self.codebook(q)

        if self.training and self.inplace_codebook_optimizer is not None:
            # update the codebook right here
            ((z_q - z.detach()) ** 2).mean().backward()
            self.inplace_codebook_optimizer.step()
            self.inplace_codebook_optimizer.zero_grad()

        loss = self.compute_loss(z, z_q)
        return z + (z_q - z).detach(), {'q': q, 'loss': loss}
# %%
class VQModel(nn.Module):
    def __init__(self, dim=6, **vq_kwargs):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(10, 16), nn.SiLU(), nn.Linear(16, dim))
        self.vq = VectorQuant(dim, num_codes=12, **vq_kwargs)
        self.decoder = nn.Linear(dim, 10)

    def forward(self, x):
        z_q, vq_out = self.vq(self.encoder(x))
        return self.decoder(z_q), vq_out

def inplace_optimizer(*args):
    return torch.optim.SGD(*args, lr=50.0, momentum=0.9)

model = VQModel(inplace_optimizer=inplace_optimizer)
opt = torch.optim.AdamW([*model.encoder.parameters(), *model.decoder.parameters()], lr=3e-4)
# %%
model.train()
usage = set()
for x in torch.randn(3, 8, 10):
    opt.zero_grad()
    out, vq_out = model(x)
    rec_loss = (out - x).abs().mean()
    loss = rec_loss + vq_out['loss']
    loss.backward()
    opt.step()
    usage |= set(vq_out['q'].tolist())
    print(f"rec loss: {rec_loss.item():.3f} | active %: {len(usage) / 12 * 100:.1f}")
# %% [fixed 2]
class VectorQuant(nn.Module):
    def __init__(self, feature_size, num_codes, beta=0.25, inplace_optimizer=None):
        super().__init__()
        self.codebook = nn.Embedding(num_codes, feature_size)
        self.beta = beta
        self.inplace_codebook_optimizer = None
        if inplace_optimizer is not None:
            self.inplace_codebook_optimizer = inplace_optimizer(self.codebook.parameters())

    @torch.no_grad()
    def get_indices(self, z):
        return torch.cdist(z, self.codebook.weight).argmin(-1)

    def compute_loss(self, z_e, z_q):
        return self.beta * F.mse_loss(z_e, z_q)

    def forward(self, z):
        q = self.get_indices(z)
        z_q = self.codebook(q)

        if self.training and self.inplace_codebook_optimizer is not None:
            # update the codebook right here
            ((z_q - z.detach()) ** 2).mean().backward()
            self.inplace_codebook_optimizer.step()
            self.inplace_codebook_optimizer.zero_grad()
            z_q = z_q.detach()

        loss = self.compute_loss(z, z_q)
        return z + (z_q - z).detach(), {'q': q, 'loss': loss}
