# %% [case]
# id: sac-temperature-exponentiated-once-in-init
# source: rail-berkeley/softlearning#163 (comment of 2021-04-20: self.alpha = self.log_alpha.exp() in the constructor)
# family: second_backward
# fails: 4
# culprit: -
# saved: 2:8
# needed: 2:33
# effect: other
# observe: [agent.log_alpha.detach().clone(), agent.alpha.item()] + [p.detach().clone() for p in agent.actor.parameters()]
# note: alpha = log_alpha.exp() is built once, the second alpha_loss.backward() goes through the same exp again (and alpha would never follow log_alpha). Human fix: recompute alpha from log_alpha in every learn().
# %%
import torch
from torch import nn, optim
import torch.nn.functional as F
torch.manual_seed(163)

class Actor(nn.Module):
    '''squashed gaussian policy'''
    def __init__(self, n_obs, n_act):
        super().__init__()
        self.base = nn.Sequential(nn.Linear(n_obs, 12), nn.ReLU(inplace=True))
        self.mu, self.log_std = nn.Linear(12, n_act), nn.Linear(12, n_act)
    def sample(self, obs):
        h = self.base(obs)
        std = self.log_std(h).clamp(-5, 2).exp()
        u = self.mu(h) + std * torch.randn_like(std)
        logp = torch.distributions.Normal(self.mu(h), std).log_prob(u) - 2 * (0.6931 - u - F.softplus(-2 * u))
        return torch.tanh(u), logp.sum(-1, keepdim=True)

class Critic(nn.Module):
    def __init__(self, n_obs, n_act):
        super().__init__()
        self.q1, self.q2 = (nn.Sequential(nn.Linear(n_obs + n_act, 12), nn.ReLU(), nn.Linear(12, 1)) for _ in range(2))
    def forward(self, obs, act):
        x = torch.cat([obs, act], -1)
        return self.q1(x), self.q2(x)
# %%
class Agent:
    def __init__(self, n_obs=3, n_act=2, gamma=0.99, tau=0.05):
        self.gamma, self.tau = gamma, tau
        self.actor, self.critic, self.critic_target = Actor(n_obs, n_act), Critic(n_obs, n_act), Critic(n_obs, n_act)
        self.critic_target.load_state_dict(self.critic.state_dict())
        self.expected_entropy = -float(n_act)
        self.log_alpha = torch.tensor(0.0, requires_grad=True)
        self.alpha = self.log_alpha.exp()
        self.actor_optimizer = optim.Adam(self.actor.parameters(), lr=0.003)
        self.critic_optimizer = optim.Adam(self.critic.parameters(), lr=0.003)
        self.alpha_optimizer = optim.Adam([self.log_alpha], lr=0.003)

    def learn(self, obs, act, rew, nxt, done):
        with torch.no_grad():
            nact, nlogp = self.actor.sample(nxt)
            target = rew + self.gamma * (1 - done) * (torch.min(*self.critic_target(nxt, nact)) - self.alpha * nlogp)
        critic_loss = sum(F.mse_loss(q, target) for q in self.critic(obs, act))
        self._step(self.critic_optimizer, critic_loss)

        new_act, logp = self.actor.sample(obs)
        actor_loss = (self.alpha.detach() * logp - torch.min(*self.critic(obs, new_act))).mean()
        self._step(self.actor_optimizer, actor_loss)

        alpha_loss = -(self.alpha * (logp + self.expected_entropy).detach()).mean()
        self._step(self.alpha_optimizer, alpha_loss)
        with torch.no_grad():
            for t, p in zip(self.critic_target.parameters(), self.critic.parameters()):
                t.lerp_(p, self.tau)

    @staticmethod
    def _step(optimizer, loss):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
# %%
def sample_batch(n=8):
    return (torch.randn(n, 3), torch.rand(n, 2) * 2 - 1, torch.randn(n, 1), torch.randn(n, 3), (torch.rand(n, 1) < 0.1).float())
agent = Agent()
# %%
for step in range(3):
    agent.learn(*sample_batch())
    print(step, 'alpha', agent.alpha.item())
# %% [fixed 2]
class Agent:
    def __init__(self, n_obs=3, n_act=2, gamma=0.99, tau=0.05):
        self.gamma, self.tau = gamma, tau
        self.actor, self.critic, self.critic_target = Actor(n_obs, n_act), Critic(n_obs, n_act), Critic(n_obs, n_act)
        self.critic_target.load_state_dict(self.critic.state_dict())
        self.expected_entropy = -float(n_act)
        self.log_alpha = torch.tensor(0.0, requires_grad=True)
        self.alpha = self.log_alpha.exp()
        self.actor_optimizer = optim.Adam(self.actor.parameters(), lr=0.003)
        self.critic_optimizer = optim.Adam(self.critic.parameters(), lr=0.003)
        self.alpha_optimizer = optim.Adam([self.log_alpha], lr=0.003)

    def learn(self, obs, act, rew, nxt, done):
        self.alpha = self.log_alpha.exp()
        with torch.no_grad():
            nact, nlogp = self.actor.sample(nxt)
            target = rew + self.gamma * (1 - done) * (torch.min(*self.critic_target(nxt, nact)) - self.alpha * nlogp)
        critic_loss = sum(F.mse_loss(q, target) for q in self.critic(obs, act))
        self._step(self.critic_optimizer, critic_loss)

        new_act, logp = self.actor.sample(obs)
        actor_loss = (self.alpha.detach() * logp - torch.min(*self.critic(obs, new_act))).mean()
        self._step(self.actor_optimizer, actor_loss)

        alpha_loss = -(self.alpha * (logp + self.expected_entropy).detach()).mean()
        self._step(self.alpha_optimizer, alpha_loss)
        with torch.no_grad():
            for t, p in zip(self.critic_target.parameters(), self.critic.parameters()):
                t.lerp_(p, self.tau)

    @staticmethod
    def _step(optimizer, loss):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
