# %% [case]
# id: wgan-critic-iterations
# source: a textbook mistake in other words
# family: second_backward
# fails: 2
# culprit: -
# saved: -
# needed: 2:4
# effect: same
# observe: [p.detach().clone() for p in [*G.parameters(), *C.parameters()]]
# note: the critic learns several times from one attached fake
# %%
import torch
from torch import nn
torch.manual_seed(0)
G, C = nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
optim = dict(g=torch.optim.RMSprop(G.parameters()), c=torch.optim.RMSprop(C.parameters()))
# %%
fakes = G(torch.randn(5, 2))
for _ in range(2):
    c_loss = C(fakes).mean() - C(torch.randn(5, 3)).mean()
    optim["c"].zero_grad(); c_loss.backward(); optim["c"].step()
g_loss = -C(fakes).mean()
optim["g"].zero_grad(); g_loss.backward(); optim["g"].step()
# %% [fixed 2]
fakes = G(torch.randn(5, 2))
for _ in range(2):
    c_loss = C(fakes.detach()).mean() - C(torch.randn(5, 3)).mean()
    optim["c"].zero_grad(); c_loss.backward(); optim["c"].step()
g_loss = -C(fakes).mean()
optim["g"].zero_grad(); g_loss.backward(); optim["g"].step()
