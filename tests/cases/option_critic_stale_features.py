# %% [case]
# id: option-critic-stale-features
# source: https://github.com/lweitkamp/option-critic-pytorch/issues/4 (re-evaluate the state after the optimization step)
# family: modified
# fails: 4
# culprit: 3:6
# saved: 1:19
# needed: 3:4
# effect: other
# observe: [p.detach().clone() for p in option_critic.parameters()]
# note: the features of the next state are computed for the TD target and then carried over as the next iteration's state; in between learn() steps the optimizer, which changes the feature layers in place. Human fix: evaluate the features again after the step (gradient at the new weights).
# %%
import torch
import torch.nn as nn
from torch.distributions import Categorical, Bernoulli
torch.manual_seed(4)

class OptionCriticFeatures(nn.Module):
    def __init__(self, in_features, num_actions, num_options):
        super().__init__()
        self.num_options = num_options
        self.features = nn.Sequential(nn.Linear(in_features, 16), nn.ReLU(),
                                      nn.Linear(16, 8), nn.ReLU())
        self.Q = nn.Linear(8, num_options)                 # Policy-Over-Options
        self.terminations = nn.Linear(8, num_options)      # Option-Termination
        self.options_W = nn.Parameter(0.1 * torch.randn(num_options, 8, num_actions))
        self.options_b = nn.Parameter(torch.zeros(num_options, num_actions))

    def get_state(self, obs):
        obs = torch.as_tensor(obs, dtype=torch.float32)
        return self.features(obs)

    def predict_option_termination(self, state, current_option):
        beta = self.terminations(state)[current_option].sigmoid()
        option_termination = Bernoulli(beta).sample().bool().item()
        return option_termination, self.Q(state).argmax(dim=-1).item()

    def get_action(self, state, option):
        logits = state @ self.options_W[option] + self.options_b[option]
        dist = Categorical(logits.softmax(dim=-1))
        action = dist.sample()
        return action.item(), dist.log_prob(action), dist.entropy()
# %%
class FourRooms:
    """tiny stand-in: walk on a line to the goal cell"""
    def __init__(self, n=6, goal=4):
        self.n, self.goal = n, goal
    def _obs(self):
        return [float(i == self.pos) for i in range(self.n)]
    def reset(self):
        self.pos = 0
        return self._obs()
    def step(self, a):
        self.pos = max(0, min(self.n - 1, self.pos + (1 if a == 1 else -1)))
        return self._obs(), float(self.pos == self.goal), self.pos == self.goal

def actor_loss_fn(model, state, option, logp, entropy, reward, done, next_state, gamma=0.99, termination_reg=0.01):
    next_Q = model.Q(next_state).detach()
    option_term_prob = model.terminations(state)[option].sigmoid()
    next_beta = model.terminations(next_state)[option].sigmoid().detach()
    gt = reward + (1 - done) * gamma * ((1 - next_beta) * next_Q[option] + next_beta * next_Q.max())
    Q = model.Q(state)[option]
    termination_loss = option_term_prob * (Q.detach() - model.Q(state).max().detach() + termination_reg) * (1 - done)
    policy_loss = -logp * (gt - Q.detach()) - 0.01 * entropy
    return termination_loss + policy_loss + 0.5 * (gt - Q).pow(2)
# %%
def learn(optim, loss):
    """the actor is updated at every step, on-line"""
    optim.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(option_critic.parameters(), 10.)
    optim.step()
    return loss.item()

env = FourRooms()
option_critic = OptionCriticFeatures(env.n, num_actions=2, num_options=2)
optim = torch.optim.RMSprop(option_critic.parameters(), lr=5e-4)
# %%
obs = env.reset()
state = option_critic.get_state(obs)
current_option, steps, total = 0, 0, 0.0
while steps < 6:
    action, logp, entropy = option_critic.get_action(state, current_option)
    next_obs, reward, done = env.step(action)
    next_state = option_critic.get_state(next_obs)
    loss = actor_loss_fn(option_critic, state, current_option, logp, entropy, reward, done, next_state)
    total += learn(optim, loss)

    state = next_state
    option_termination, greedy_option = option_critic.predict_option_termination(state, current_option)
    if option_termination:
        current_option = greedy_option
    obs, steps = next_obs, steps + 1
    if done: break
print(steps, total)
# %% [fixed 4]
obs = env.reset()
state = option_critic.get_state(obs)
current_option, steps, total = 0, 0, 0.0
while steps < 6:
    action, logp, entropy = option_critic.get_action(state, current_option)
    next_obs, reward, done = env.step(action)
    next_state = option_critic.get_state(next_obs)
    loss = actor_loss_fn(option_critic, state, current_option, logp, entropy, reward, done, next_state)
    total += learn(optim, loss)

    state = option_critic.get_state(next_obs)
    option_termination, greedy_option = option_critic.predict_option_termination(state, current_option)
    if option_termination:
        current_option = greedy_option
    obs, steps = next_obs, steps + 1
    if done: break
print(steps, total)
