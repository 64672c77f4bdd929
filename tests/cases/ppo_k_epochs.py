# %% [case]
# id: ppo-k-epochs
# source: a textbook mistake in other words
# family: second_backward
# fails: 3
# culprit: -
# saved: -
# needed: 3:9
# effect: other
# observe: [p.detach().clone() for p in policy.parameters()]
# note: old log-probabilities and advantages carry a graph through all epochs
# %%
import torch
from torch import nn
torch.manual_seed(0)
class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor, self.critic = nn.Linear(3, 2), nn.Linear(3, 1)
    def evaluate(self, s, a):
        d = torch.distributions.Categorical(logits=self.actor(s))
        return d.log_prob(a), self.critic(s).squeeze(-1), d.entropy()
policy = ActorCritic()
opt = torch.optim.Adam(policy.parameters(), lr=0.01)
# %%
states, actions, rewards = torch.randn(6, 3), torch.randint(0, 2, (6,)), torch.randn(6)
old_logp, old_values, _ = policy.evaluate(states, actions)
# %%
K_epochs = 3
adv = rewards - old_values
for k in range(K_epochs):
    logp, values, ent = policy.evaluate(states, actions)
    ratio = (logp - old_logp).exp()
    surr = torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv)
    loss = -surr.mean() + 0.5 * (values - rewards).pow(2).mean() - 0.01 * ent.mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
# %% [fixed 2]
states, actions, rewards = torch.randn(6, 3), torch.randint(0, 2, (6,)), torch.randn(6)
with torch.no_grad():
    old_logp, old_values, _ = policy.evaluate(states, actions)
