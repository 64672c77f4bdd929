# %% [case]
# id: sarsa-next-value-carried-over-the-step
# source: https://github.com/rentruewang/brief/issues/1 (temporal-difference loop that needs the graph of the step before), condensed as on-policy SARSA
# family: modified
# fails: 4
# culprit: 2:21
# saved: 2:14
# needed: 2:20
# effect: other
# observe: [agent.q[2].weight.detach().clone()]
# note: the value of (s2, a2) is computed before learn() and becomes the prediction of the next step, with the weights of before opt.step(). Human fix: evaluate q(s, a) again after the update; the number changes, since the weights did.
# %%
import random
import torch
import torch.nn as nn

class Corridor:
    """5 cells, start left, +1 at the right end"""
    n = 5
    def reset(self):
        self.pos = 0
        return self.one_hot()
    def one_hot(self):
        return torch.eye(self.n)[self.pos]
    def step(self, action):
        self.pos = min(max(self.pos + (1 if action else -1), 0), self.n - 1)
        done = self.pos == self.n - 1
        return self.one_hot(), (1. if done else -0.05), done
# %%
class SarsaAgent:
    def __init__(self, n_states, n_actions=2, gamma=0.9, eps=0.2):
        self.q = nn.Sequential(nn.Linear(n_states, 12), nn.Tanh(), nn.Linear(12, n_actions))
        self.opt = torch.optim.SGD(self.q.parameters(), lr=0.05)
        self.gamma, self.eps, self.n_actions = gamma, eps, n_actions

    def act(self, state):
        if random.random() < self.eps:
            return random.randrange(self.n_actions)
        with torch.no_grad():
            return int(self.q(state).argmax())

    def value(self, state, action):
        return self.q(state)[action]

    def learn(self, q_sa, reward, q_next, done):
        target = reward + self.gamma * q_next.detach() * (not done)
        loss = (target - q_sa) ** 2
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()
# %%
random.seed(1); torch.manual_seed(1)
env, agent = Corridor(), SarsaAgent(Corridor.n)
history = []
# %%
for episode in range(3):
    s, done, t = env.reset(), False, 0
    a = agent.act(s)
    q_sa = agent.value(s, a)
    while not done and (t := t + 1) < 15:
        s2, r, done = env.step(a)
        a2 = agent.act(s2)
        q_next = agent.value(s2, a2)
        history.append(agent.learn(q_sa, r, q_next, done))
        # on-policy: next pair becomes the current one
        s, a, q_sa = s2, a2, q_next
    print('episode', episode, 'steps', t, 'last td', history[-1])
# %% [fixed 4]
for episode in range(3):
    s, done, t = env.reset(), False, 0
    a = agent.act(s)
    q_sa = agent.value(s, a)
    while not done and (t := t + 1) < 15:
        s2, r, done = env.step(a)
        a2 = agent.act(s2)
        q_next = agent.value(s2, a2)
        history.append(agent.learn(q_sa, r, q_next, done))
        # on-policy: next pair becomes the current one
        s, a, q_sa = s2, a2, agent.value(s2, a2)
    print('episode', episode, 'steps', t, 'last td', history[-1])
