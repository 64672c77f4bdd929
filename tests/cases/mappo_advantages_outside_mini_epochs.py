# %% [case]
# id: mappo-advantages-outside-mini-epochs
# source: https://github.com/hijkzzz/pymarl2/issues/46 (MAPPO bug, trying to backward through the graph a second time)
# family: second_backward
# fails: 4
# culprit: 3:24
# saved: 3:17 | 3:14
# needed: 3:31
# effect: truncates
# observe: [p.detach().clone() for p in list(learner.mac.parameters()) + list(learner.critic.parameters())]
# note: advantages are computed once, outside of the mini_epochs loop, with the critic's graph; the first mini epoch's backward frees that graph, the second runs into it. Human fix: detach the advantages (they are only used for the actor's loss).
# %%
from types import SimpleNamespace as SN
import torch as th
import torch.nn as nn
import torch.nn.functional as F
th.manual_seed(46)

args = SN(n_agents=2, obs_shape=3, state_shape=5, n_actions=4, gamma=0.99, td_lambda=0.8,
          mini_epochs=3, eps_clip=0.2, entropy_coef=0.01, critic_coef=0.5, lr=5e-3)
# %%
class BasicMAC(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.fc1 = nn.Linear(args.obs_shape, 16)
        self.fc2 = nn.Linear(16, args.n_actions)
    def forward(self, obs):
        return F.softmax(self.fc2(F.relu(self.fc1(obs))), dim=-1)

class CentralVCritic(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.fc1 = nn.Linear(args.state_shape, 16)
        self.fc2 = nn.Linear(16, args.n_agents)
    def forward(self, state):
        return self.fc2(F.relu(self.fc1(state)))

def build_gae_targets(rewards, masks, values, gamma, lam):
    """generalised advantage estimation, backwards in time"""
    B, T, _ = rewards.shape
    advs, last = [None] * T, 0.0
    for t in reversed(range(T)):
        delta = rewards[:, t] + gamma * values[:, t + 1] * masks[:, t] - values[:, t]
        last = delta + gamma * lam * last * masks[:, t]
        advs[t] = last
    advs = th.stack(advs, 1)
    return advs + values[:, :-1].detach(), advs
# %%
class PPOLearner:
    def __init__(self, mac, critic, args):
        self.mac, self.critic, self.args = mac, critic, args
        self.params = list(mac.parameters()) + list(critic.parameters())
        self.optimiser = th.optim.Adam(self.params, lr=args.lr)
        self.log = []

    def train(self, batch):
        args = self.args
        rewards, actions, mask = batch["reward"], batch["actions"], 1 - batch["terminated"]
        with th.no_grad():
            old_probs = self.mac(batch["obs"][:, :-1]).gather(-1, actions.unsqueeze(-1)).squeeze(-1)

        values = self.critic(batch["state"])
        # targets and advantages
        targets, advantages = build_gae_targets(rewards, mask, values, args.gamma, args.td_lambda)
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-6)
        targets = targets.detach()

        for epoch in range(args.mini_epochs):
            pi = self.mac(batch["obs"][:, :-1])
            taken = pi.gather(-1, actions.unsqueeze(-1)).squeeze(-1)
            ratios = taken / (old_probs + 1e-5)
            surr1 = ratios * advantages
            surr2 = ratios.clamp(1 - args.eps_clip, 1 + args.eps_clip) * advantages
            actor_loss = -th.min(surr1, surr2).mean()
            critic_loss = F.smooth_l1_loss(self.critic(batch["state"])[:, :-1], targets)
            entropy = -(pi * (pi + 1e-10).log()).sum(-1).mean()
            loss = actor_loss + args.critic_coef * critic_loss - args.entropy_coef * entropy
            self.optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.params, 10)
            self.optimiser.step()
            self.log.append((actor_loss.item(), critic_loss.item()))
# %%
B, T = 4, 6
batch = {
    "obs": th.randn(B, T + 1, args.n_agents, args.obs_shape),
    "state": th.randn(B, T + 1, args.state_shape),
    "actions": th.randint(0, args.n_actions, (B, T, args.n_agents)),
    "reward": th.randn(B, T, 1),
    "terminated": th.zeros(B, T, 1),
}
learner = PPOLearner(BasicMAC(args), CentralVCritic(args), args)
for episode in range(2):
    learner.train(batch)
print(learner.log[-1])
# %% [fixed 3]
class PPOLearner:
    def __init__(self, mac, critic, args):
        self.mac, self.critic, self.args = mac, critic, args
        self.params = list(mac.parameters()) + list(critic.parameters())
        self.optimiser = th.optim.Adam(self.params, lr=args.lr)
        self.log = []

    def train(self, batch):
        args = self.args
        rewards, actions, mask = batch["reward"], batch["actions"], 1 - batch["terminated"]
        with th.no_grad():
            old_probs = self.mac(batch["obs"][:, :-1]).gather(-1, actions.unsqueeze(-1)).squeeze(-1)

        values = self.critic(batch["state"])
        # targets and advantages
        targets, advantages = build_gae_targets(rewards, mask, values, args.gamma, args.td_lambda)
        advantages = ((advantages - advantages.mean()) / (advantages.std() + 1e-6)).detach()
        targets = targets.detach()

        for epoch in range(args.mini_epochs):
            pi = self.mac(batch["obs"][:, :-1])
            taken = pi.gather(-1, actions.unsqueeze(-1)).squeeze(-1)
            ratios = taken / (old_probs + 1e-5)
            surr1 = ratios * advantages
            surr2 = ratios.clamp(1 - args.eps_clip, 1 + args.eps_clip) * advantages
            actor_loss = -th.min(surr1, surr2).mean()
            critic_loss = F.smooth_l1_loss(self.critic(batch["state"])[:, :-1], targets)
            entropy = -(pi * (pi + 1e-10).log()).sum(-1).mean()
            loss = actor_loss + args.critic_coef * critic_loss - args.entropy_coef * entropy
            self.optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.params, 10)
            self.optimiser.step()
            self.log.append((actor_loss.item(), critic_loss.item()))
