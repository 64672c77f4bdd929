# %% [case]
# id: cql-policy-step-before-conservative-q-loss
# source: https://github.com/aviralkumar2907/CQL/issues/5
# family: modified
# fails: 4
# culprit: 3:31
# saved: 1:14
# needed: 2:20 | 3:32
# effect: same
# observe: [stats['qf1'], stats['policy']] + [p.detach().clone() for m in nets.values() for p in m.parameters()]
# note: all losses are formulated first; the conservative part of the QF loss uses actions that were sampled with the reparametrisation trick, so qf1_loss is propagated through the policy, which policy_optimizer.step() has changed by then. Of the two answers in the thread (update the policy earlier, do not reparametrise the actions of the QF loss) the fix takes the second: the sampled actions are detached.
# %%
import copy
import torch
from torch import nn
torch.manual_seed(2907)

class TanhGaussianPolicy(nn.Module):
    def __init__(self, obs_dim, action_dim, hidden=12):
        super().__init__()
        self.fc0 = nn.Linear(obs_dim, hidden)
        self.last_fc = nn.Linear(hidden, 2 * action_dim)

    def forward(self, obs, reparameterize=True):
        h = torch.relu(self.fc0(obs))
        mean, log_std = self.last_fc(h).chunk(2, dim=-1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
        pre_tanh = normal.rsample() if reparameterize else normal.sample()
        action = pre_tanh.tanh()
        log_pi = normal.log_prob(pre_tanh) - torch.log(1 - action * action + 1e-6)
        return action, log_pi.sum(-1, keepdim=True)

class FlattenMlp(nn.Module):
    def __init__(self, input_size, hidden=12):
        super().__init__()
        self.fc0, self.fc1 = nn.Linear(input_size, hidden), nn.Linear(hidden, 1)

    def forward(self, *inputs):
        return self.fc1(torch.relu(self.fc0(torch.cat(inputs, dim=-1))))
# %%
obs_dim, action_dim, num_random = 3, 2, 4
nets = dict(policy=TanhGaussianPolicy(obs_dim, action_dim),
            qf1=FlattenMlp(obs_dim + action_dim), qf2=FlattenMlp(obs_dim + action_dim))
targets = {k: copy.deepcopy(nets[k]) for k in ('qf1', 'qf2')}
optimizers = {k: torch.optim.Adam(net.parameters(), lr=3e-4) for k, net in nets.items()}

def get_policy_actions(obs, num_actions, network):
    obs_temp = obs.unsqueeze(1).repeat(1, num_actions, 1).view(-1, obs.shape[1])
    new_obs_actions, new_obs_log_pi = network(obs_temp, reparameterize=True)
    return new_obs_actions, new_obs_log_pi.view(obs.shape[0], num_actions, 1)

def get_tensor_values(obs, actions, network):
    num_repeat = actions.shape[0] // obs.shape[0]
    obs_temp = obs.unsqueeze(1).repeat(1, num_repeat, 1).view(-1, obs.shape[1])
    return network(obs_temp, actions).view(obs.shape[0], num_repeat, 1)

def update(optimizers, losses, names, retain_graph=False):
    for name in names:
        optimizers[name].zero_grad()
        losses[name].backward(retain_graph=retain_graph)
        optimizers[name].step()
# %%
def train_from_torch(batch, discount=0.99, alpha=0.2, min_q_weight=5.0, temp=1.0):
    obs, actions, rewards, next_obs, terminals = batch
    policy, policy_optimizer = nets['policy'], optimizers['policy']
    losses = {}
    """Policy loss"""
    new_obs_actions, log_pi = policy(obs)
    q_new_actions = torch.min(nets['qf1'](obs, new_obs_actions), nets['qf2'](obs, new_obs_actions))
    losses['policy'] = (alpha * log_pi - q_new_actions).mean()

    """QF loss"""
    with torch.no_grad():
        next_a, next_log_pi = policy(next_obs)
        target_q = torch.min(targets['qf1'](next_obs, next_a), targets['qf2'](next_obs, next_a)) - alpha * next_log_pi
        q_target = rewards + (1. - terminals) * discount * target_q

    # add CQL
    random_actions = torch.empty(len(obs) * num_random, action_dim).uniform_(-1, 1)
    curr_actions, curr_log_pis = get_policy_actions(obs, num_random, policy)
    for name in ('qf1', 'qf2'):
        qf = nets[name]
        q_pred = qf(obs, actions)
        q_rand = get_tensor_values(obs, random_actions, qf)
        q_curr = get_tensor_values(obs, curr_actions, qf)
        cat_q = torch.cat([q_rand, q_pred.unsqueeze(1), q_curr - curr_log_pis.detach()], 1)
        min_qf_loss = torch.logsumexp(cat_q / temp, dim=1).mean() * min_q_weight * temp - q_pred.mean() * min_q_weight
        losses[name] = (q_pred - q_target).pow(2).mean() + min_qf_loss

    """Update networks"""
    policy_optimizer.zero_grad()
    losses['policy'].backward()
    policy_optimizer.step()
    update(optimizers, losses, ['qf1', 'qf2'], retain_graph=True)

    with torch.no_grad():
        for k in targets:
            for t, p in zip(targets[k].parameters(), nets[k].parameters()):
                t.mul_(1 - 5e-3).add_(p, alpha=5e-3)
    return {k: v.item() for k, v in losses.items()}
# %%
n = 8
for epoch in range(2):
    batch = (torch.randn(n, obs_dim), torch.rand(n, action_dim) * 2 - 1, torch.randn(n, 1), torch.randn(n, obs_dim), torch.zeros(n, 1))
    stats = train_from_torch(batch)
    print(epoch, stats)
# %% [fixed 3]
def train_from_torch(batch, discount=0.99, alpha=0.2, min_q_weight=5.0, temp=1.0):
    obs, actions, rewards, next_obs, terminals = batch
    policy, policy_optimizer = nets['policy'], optimizers['policy']
    losses = {}
    """Policy loss"""
    new_obs_actions, log_pi = policy(obs)
    q_new_actions = torch.min(nets['qf1'](obs, new_obs_actions), nets['qf2'](obs, new_obs_actions))
    losses['policy'] = (alpha * log_pi - q_new_actions).mean()

    """QF loss"""
    with torch.no_grad():
        next_a, next_log_pi = policy(next_obs)
        target_q = torch.min(targets['qf1'](next_obs, next_a), targets['qf2'](next_obs, next_a)) - alpha * next_log_pi
        q_target = rewards + (1. - terminals) * discount * target_q

    # add CQL
    random_actions = torch.empty(len(obs) * num_random, action_dim).uniform_(-1, 1)
    curr_actions, curr_log_pis = get_policy_actions(obs, num_random, policy)
    for name in ('qf1', 'qf2'):
        qf = nets[name]
        q_pred = qf(obs, actions)
        q_rand = get_tensor_values(obs, random_actions, qf)
        q_curr = get_tensor_values(obs, curr_actions.detach(), qf)
        cat_q = torch.cat([q_rand, q_pred.unsqueeze(1), q_curr - curr_log_pis.detach()], 1)
        min_qf_loss = torch.logsumexp(cat_q / temp, dim=1).mean() * min_q_weight * temp - q_pred.mean() * min_q_weight
        losses[name] = (q_pred - q_target).pow(2).mean() + min_qf_loss

    """Update networks"""
    policy_optimizer.zero_grad()
    losses['policy'].backward()
    policy_optimizer.step()
    update(optimizers, losses, ['qf1', 'qf2'])

    with torch.no_grad():
        for k in targets:
            for t, p in zip(targets[k].parameters(), nets[k].parameters()):
                t.mul_(1 - 5e-3).add_(p, alpha=5e-3)
    return {k: v.item() for k, v in losses.items()}
