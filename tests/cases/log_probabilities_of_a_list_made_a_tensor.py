# %% [case]
# id: log-probabilities-of-a-list-made-a-tensor
# source: REINFORCE with torch.tensor(log_probs)
# family: silent
# fails: -
# culprit: 2:13
# saved: -
# needed: 2:16
# effect: same
# observe: [p.grad.clone() for p in weights.parameters()]
# note: torch.tensor of a list of tensors copies values: the policy never gets a gradient. Fix: torch.stack.
# %%
import warnings
import torch
import torch.nn as nn
from torch.distributions import Categorical
warnings.filterwarnings("ignore")
torch.manual_seed(12)
# %%
weights = nn.Linear(4, 3)
value = nn.Linear(4, 1)
opt = torch.optim.SGD([*weights.parameters(), *value.parameters()], lr=0.05)
for episode in range(2):
    logs, rewards, values = [], [], []
    for state in torch.randn(5, 4):
        choice = Categorical(logits=weights(state))
        action = choice.sample()
        logs.append(choice.log_prob(action))
        values.append(value(state).squeeze(-1))
        rewards.append(state.sum() - action)
    reward, values = torch.stack(rewards), torch.stack(values)
    logs = torch.tensor(logs)
    loss = -(logs * (reward - values.detach())).mean() + (values - reward).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
# %% [fixed 2]
weights = nn.Linear(4, 3)
value = nn.Linear(4, 1)
opt = torch.optim.SGD([*weights.parameters(), *value.parameters()], lr=0.05)
for episode in range(2):
    logs, rewards, values = [], [], []
    for state in torch.randn(5, 4):
        choice = Categorical(logits=weights(state))
        action = choice.sample()
        logs.append(choice.log_prob(action))
        values.append(value(state).squeeze(-1))
        rewards.append(state.sum() - action)
    reward, values = torch.stack(rewards), torch.stack(values)
    logs = torch.stack(logs)
    loss = -(logs * (reward - values.detach())).mean() + (values - reward).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
