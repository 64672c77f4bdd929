# %% [case]
# id: dcgan-in-helpers
# source: a textbook mistake in other words
# family: second_backward
# fails: 3
# culprit: -
# saved: -
# needed: 3:6
# effect: same
# observe: [p.detach().clone() for p in [*generator.parameters(), *critic.parameters()]]
# note: the discriminator's loss is a helper that is handed an attached fake
# %%
import torch
from torch import nn
torch.manual_seed(0)
generator, critic = nn.Linear(2, 3), nn.Linear(3, 1)
og = torch.optim.SGD(generator.parameters(), lr=0.1)
oc = torch.optim.SGD(critic.parameters(), lr=0.1)
bce = nn.BCEWithLogitsLoss()
# %%
def critic_loss(real, made):
    good = bce(critic(real), torch.ones(len(real), 1))
    bad = bce(critic(made), torch.zeros(len(made), 1))
    return good + bad
def generator_loss(made):
    return bce(critic(made), torch.ones(len(made), 1))
# %%
for real in torch.randn(2, 4, 3):
    made = generator(torch.randn(4, 2))
    oc.zero_grad(); critic_loss(real, made).backward(); oc.step()
    og.zero_grad()
    g = generator_loss(made)
    g.backward()
    og.step()
# %% [fixed 3]
for real in torch.randn(2, 4, 3):
    made = generator(torch.randn(4, 2))
    oc.zero_grad(); critic_loss(real, made.detach()).backward(); oc.step()
    og.zero_grad()
    g = generator_loss(made)
    g.backward()
    og.step()
