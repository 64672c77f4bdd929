# %% [case]
# id: advantage-of-values-trained-by-hand
# source: discuss.pytorch.org, trying to backward through the graph a second time (191396)
# family: second_backward
# fails: 5
# culprit: 2:17
# saved: 2:10
# needed: 3:16
# effect: truncates
# observe: [[g.clone() for g in policy_grads], [p.detach().clone() for p in policy.parameters()], [p.detach().clone() for p in V.parameters()]]
# note: The value functions V and Q are fitted with their own backward at every time step; the advantage A = Q - V keeps their graphs and enters the clipped surrogate, so the policy backward at the end of the episode walks into the freed value graphs. The advantage is a constant for the policy in PPO: A = (q - v).detach().
# %%
import torch
import torch.nn as nn
from torch.distributions import Categorical
torch.manual_seed(11)
STATES, ACTIONS, T = 4, 2, 5
# %%
class ValueFunction(nn.Module):
    def __init__(self, n_in, lr=0.05):
        super().__init__()
        self.fc1 = nn.Linear(n_in, 8)
        self.fc2 = nn.Linear(8, 1)
        self.lr = lr

    def forward(self, x):
        x = torch.tanh(self.fc1(x))
        return self.fc2(x).squeeze(-1)

    def mse(self, value, target):
        return (value - target) ** 2

    def sgd(self, loss):
        self.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in self.parameters():
                p -= self.lr * p.grad
# %%
class PolicyNetwork(nn.Module):
    def __init__(self, lr=0.1, eps=0.2):
        super().__init__()
        self.fc = nn.Linear(STATES, ACTIONS)
        self.lr, self.eps = lr, eps

    def forward(self, s):
        return torch.softmax(self.fc(s), dim=-1)

    def clipped_surrogate(self, s, a, old_prob, A):
        ratio = self(s)[a] / old_prob
        return torch.min(ratio * A, torch.clamp(ratio, 1 - self.eps, 1 + self.eps) * A)

    def sga(self, objective):
        self.zero_grad()
        objective.backward()
        with torch.no_grad():
            for p in self.parameters():
                p += self.lr * p.grad
# %%
policy = PolicyNetwork()
V = ValueFunction(STATES)
Q = ValueFunction(STATES + ACTIONS)
states = torch.randn(T, STATES)
returns = torch.randn(T)
# %%
surrogates = []
for t in range(T):
    s = states[t]
    with torch.no_grad():
        probs = policy(s)
        a = Categorical(probs).sample()
    q = Q(torch.cat([s, nn.functional.one_hot(a, ACTIONS).float()]))
    v = V(s)
    A = q - v
    surrogates.append(policy.clipped_surrogate(s, a, probs[a], A))
    V.sgd(V.mse(v, returns[t]))
    Q.sgd(Q.mse(q, returns[t]))
policy.sga(torch.stack(surrogates).mean())
policy_grads = [p.grad for p in policy.parameters()]
print(policy_grads)
# %% [fixed 5]
surrogates = []
for t in range(T):
    s = states[t]
    with torch.no_grad():
        probs = policy(s)
        a = Categorical(probs).sample()
    q = Q(torch.cat([s, nn.functional.one_hot(a, ACTIONS).float()]))
    v = V(s)
    A = (q - v).detach()
    surrogates.append(policy.clipped_surrogate(s, a, probs[a], A))
    V.sgd(V.mse(v, returns[t]))
    Q.sgd(Q.mse(q, returns[t]))
policy.sga(torch.stack(surrogates).mean())
policy_grads = [p.grad for p in policy.parameters()]
print(policy_grads)
