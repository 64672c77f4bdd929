# %% [case]
# id: tbptt-deque-goes-back-when-it-is-full
# source: a textbook mistake in other words
# family: second_backward
# fails: 3
# culprit: -
# saved: -
# needed: 1:21
# effect: other
# observe: [p.detach().clone() for p in learner.parameters()]
# note: the deque keeps losses that were already gone through; the next sum goes through them again. Fix: detach the state and the kept losses after each update.
# %%
from collections import deque
import torch
from torch import nn

class OnlineForecaster(nn.Module):
    def __init__(self, hidden=6, horizon=4):
        super().__init__()
        self.rnn, self.out = nn.GRUCell(1, hidden), nn.Linear(hidden, 1)
        self.state = torch.zeros(1, hidden)
        self.recent = deque(maxlen=horizon)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=0.01)

    def observe(self, now, nxt):
        self.state = self.rnn(now.view(1, 1), self.state)
        self.recent.append((self.out(self.state) - nxt).abs().mean())
        if len(self.recent) == self.recent.maxlen:
            self.update()

    def update(self):
        self.optimizer.zero_grad()
        torch.stack(tuple(self.recent)).mean().backward()
        self.optimizer.step()
# %%
torch.manual_seed(18)
learner = OnlineForecaster()
wave = torch.sin(torch.linspace(0, 6, 13))
# %%
for i in range(len(wave) - 1):
    learner.observe(wave[i], wave[i + 1])
# %% [fixed 1]
from collections import deque
import torch
from torch import nn

class OnlineForecaster(nn.Module):
    def __init__(self, hidden=6, horizon=4):
        super().__init__()
        self.rnn, self.out = nn.GRUCell(1, hidden), nn.Linear(hidden, 1)
        self.state = torch.zeros(1, hidden)
        self.recent = deque(maxlen=horizon)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=0.01)

    def observe(self, now, nxt):
        self.state = self.rnn(now.view(1, 1), self.state)
        self.recent.append((self.out(self.state) - nxt).abs().mean())
        if len(self.recent) == self.recent.maxlen:
            self.update()

    def update(self):
        self.optimizer.zero_grad()
        torch.stack(tuple(self.recent)).mean().backward()
        self.optimizer.step()
        self.state = self.state.detach()
        self.recent = deque((r.detach() for r in self.recent), maxlen=self.recent.maxlen)
