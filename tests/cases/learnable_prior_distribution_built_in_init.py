# %% [case]
# id: learnable-prior-distribution-built-in-init
# source: https://github.com/pytorch/pytorch/issues/11192 (Cannot Backward Twice Through Distribution)
# family: second_backward
# fails: 4
# culprit: 1:15
# saved: 1:11 | 1:12
# needed: 4:5
# effect: other
# observe: [elbo.detach(), vae.prior.log_scale.grad.clone(), vae.prior.logits.grad.clone(), vae.enc.weight.grad.clone()]
# note: the distribution object computes log_scale.exp() and the normalised logits when it is made and keeps them; the first backward frees that part of the graph, the second step goes through it again. Human fix: make the distribution from the parameters anew each time (a property). retain_graph=True only turns it into stale values.
# %%
import torch
from torch import nn
import torch.distributions as D

class MixturePrior(nn.Module):
    def __init__(self, n_components, dim):
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(n_components))
        self.loc = nn.Parameter(torch.randn(n_components, dim))
        self.log_scale = nn.Parameter(torch.zeros(n_components, dim))
        components = D.Independent(D.Normal(self.loc, self.log_scale.exp()), 1)
        self.dist = D.MixtureSameFamily(D.Categorical(logits=self.logits), components)

    def log_prob(self, z):
        return self.dist.log_prob(z)
# %%
class VAE(nn.Module):
    def __init__(self, n_in=6, n_z=2):
        super().__init__()
        self.enc = nn.Linear(n_in, 2 * n_z)
        self.dec = nn.Linear(n_z, n_in)
        self.prior = MixturePrior(3, n_z)

    def forward(self, x):
        mu, log_sigma = self.enc(x).chunk(2, dim=1)
        q = D.Independent(D.Normal(mu, log_sigma.exp()), 1)
        z = q.rsample()
        p = D.Independent(D.Bernoulli(logits=self.dec(z)), 1)
        return p.log_prob(x) + self.prior.log_prob(z) - q.log_prob(z)
# %%
torch.manual_seed(11192)
vae = VAE()
opt = torch.optim.RMSprop(vae.parameters(), lr=1e-2)
data = torch.rand(12, 6).round()
# %%
for epoch in range(2):
    for x in data.split(6):
        elbo = vae(x).mean()
        opt.zero_grad()
        (-elbo).backward()
        opt.step()
    print(epoch, elbo.item())
# %% [fixed 1]
import torch
from torch import nn
import torch.distributions as D

class MixturePrior(nn.Module):
    def __init__(self, n_components, dim):
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(n_components))
        self.loc = nn.Parameter(torch.randn(n_components, dim))
        self.log_scale = nn.Parameter(torch.zeros(n_components, dim))

    @property
    def dist(self):
        components = D.Independent(D.Normal(self.loc, self.log_scale.exp()), 1)
        return D.MixtureSameFamily(D.Categorical(logits=self.logits), components)

    def log_prob(self, z):
        return self.dist.log_prob(z)
