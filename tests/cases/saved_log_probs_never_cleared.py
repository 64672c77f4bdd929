# %% [case]
# id: saved-log-probs-never-cleared
# source: REINFORCE with the episode's log probabilities kept on the policy
# family: second_backward
# fails: 3
# culprit: 2:13
# saved: 1:11 | 2:2 | 2:4
# needed: 2:15
# effect: other
# observe: [p.detach().clone() for p in policy.parameters()]
# note: saved_log_probs still holds the log probabilities of the last episode. Fix: clear the lists after each episode.
# %%
import torch
import torch.nn as nn
from torch.distributions import Categorical

class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1, self.affine2 = nn.Linear(4, 16), nn.Linear(16, 2)
        self.saved_log_probs, self.rewards = [], []
    def forward(self, x):
        return torch.softmax(self.affine2(torch.relu(self.affine1(x))), dim=-1)

torch.manual_seed(1)
policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
# %%
def select_action(state):
    m = Categorical(policy(state))
    action = m.sample()
    policy.saved_log_probs.append(m.log_prob(action))
    return action.item()

def finish_episode(gamma=0.99):
    R, returns = 0., []
    for r in policy.rewards[::-1]:
        R = r + gamma * R
        returns.insert(0, R)
    returns = torch.tensor(returns)
    loss = -(torch.stack(policy.saved_log_probs) * returns).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
# %%
for i_episode in range(3):
    state = torch.randn(4)
    for t in range(3):
        action = select_action(state)
        state = state.roll(1) + 0.1 * (action - 0.5)
        policy.rewards.append(float(action))
    finish_episode()
# %% [fixed 2]
def select_action(state):
    m = Categorical(policy(state))
    action = m.sample()
    policy.saved_log_probs.append(m.log_prob(action))
    return action.item()

def finish_episode(gamma=0.99):
    R, returns = 0., []
    for r in policy.rewards[::-1]:
        R = r + gamma * R
        returns.insert(0, R)
    returns = torch.tensor(returns)
    loss = -(torch.stack(policy.saved_log_probs) * returns).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    del policy.rewards[:]
    del policy.saved_log_probs[:]
