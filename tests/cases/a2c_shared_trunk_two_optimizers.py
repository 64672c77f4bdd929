# %% [case]
# id: a2c-shared-trunk-two-optimizers
# source: actor-critic tutorial, one body, two optimizers that step one after the other
# family: modified
# fails: 4
# culprit: 3:10
# saved: 1:13
# needed: 3:13
# effect: other
# observe: [p.detach().clone() for p in net.parameters()]
# note: actor_opt.step() moves the shared body before critic_loss.backward() goes back through it. Fix: both backwards first, then both steps.
# %%
import torch, torch.nn as nn
from torch.distributions import Categorical
torch.manual_seed(11)

class ActorCritic(nn.Module):
    def __init__(self, n_obs=4, n_act=3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_obs, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh())
        self.pi = nn.Linear(16, n_act)
        self.v = nn.Linear(16, 1)

    def forward(self, obs):
        z = self.body(obs)
        return Categorical(logits=self.pi(z)), self.v(z).squeeze(-1)
# %%
net = ActorCritic()
actor_opt = torch.optim.Adam([*net.body.parameters(), *net.pi.parameters()], lr=1e-2)
critic_opt = torch.optim.Adam([*net.body.parameters(), *net.v.parameters()], lr=1e-2)

def discount(rewards, gamma=0.9):
    out, R = [], 0.
    for r in reversed(rewards):
        R = r + gamma * R
        out.insert(0, R)
    return torch.tensor(out)
# %%
def update(obs, acts, rewards):
    returns = discount(rewards)
    dist, values = net(obs)
    adv = returns - values
    actor_loss = -(dist.log_prob(acts) * adv.detach()).mean()
    critic_loss = adv.pow(2).mean()

    actor_opt.zero_grad()
    actor_loss.backward(retain_graph=True)
    actor_opt.step()

    critic_opt.zero_grad()
    critic_loss.backward()
    critic_opt.step()
    return actor_loss.item(), critic_loss.item()
# %%
for episode in range(2):
    obs = torch.randn(6, 4)
    with torch.no_grad():
        acts = net(obs)[0].sample()
    print(episode, update(obs, acts, [1., 0., 0., 1., 1., 0.]))
# %% [fixed 3]
def update(obs, acts, rewards):
    returns = discount(rewards)
    dist, values = net(obs)
    adv = returns - values
    actor_loss = -(dist.log_prob(acts) * adv.detach()).mean()
    critic_loss = adv.pow(2).mean()

    actor_opt.zero_grad()
    critic_opt.zero_grad()
    actor_loss.backward(retain_graph=True)
    critic_loss.backward()
    actor_opt.step()
    critic_opt.step()
    return actor_loss.item(), critic_loss.item()
