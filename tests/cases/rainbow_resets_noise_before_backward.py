# %% [case]
# id: rainbow-resets-noise-before-backward
# source: Rainbow agent, NoisyLinear buffers refreshed between loss and backward
# family: modified
# fails: 4
# culprit: 1:20
# saved: 1:23
# needed: 4:8
# effect: same
# observe: [p.grad.clone() for p in online.parameters()]
# note: sigma * epsilon saved the noise buffers, reset_noise copies new noise into them. Fix: reset after the backward.
# %%
import math
import torch
from torch import nn
import torch.nn.functional as F

class NoisyLinear(nn.Module):
    def __init__(self, i, o, std=0.5):
        super().__init__()
        self.i, self.o = i, o
        self.w_mu = nn.Parameter(torch.empty(o, i).uniform_(-1 / math.sqrt(i), 1 / math.sqrt(i)))
        self.w_sigma = nn.Parameter(torch.full((o, i), std / math.sqrt(i)))
        self.register_buffer('w_eps', torch.empty(o, i))
        self.reset_noise()

    def _scale(self, n):
        x = torch.randn(n)
        return x.sign().mul_(x.abs().sqrt_())

    def reset_noise(self):
        self.w_eps.copy_(torch.outer(self._scale(self.o), self._scale(self.i)))

    def forward(self, x):
        return F.linear(x, self.w_mu + self.w_sigma * self.w_eps)
# %%
class DQN(nn.Module):
    def __init__(self):
        super().__init__()
        self.f1, self.f2 = NoisyLinear(4, 12), NoisyLinear(12, 3)
    def forward(self, x):
        return self.f2(torch.relu(self.f1(x)))
    def reset_noise(self):
        for m in self.children():
            m.reset_noise()
# %%
torch.manual_seed(5)
online, target = DQN(), DQN()
target.load_state_dict(online.state_dict())
optimiser = torch.optim.Adam(online.parameters(), 1e-3)
s, a, r, s2 = torch.randn(8, 4), torch.randint(0, 3, (8,)), torch.rand(8), torch.randn(8, 4)
# %%
q = online(s).gather(1, a[:, None]).squeeze(1)
with torch.no_grad():
    target.reset_noise()
    tgt = r + 0.99 * target(s2).max(1)[0]
loss = F.smooth_l1_loss(q, tgt)
online.reset_noise()
optimiser.zero_grad()
loss.backward()
optimiser.step()
# %% [fixed 4]
q = online(s).gather(1, a[:, None]).squeeze(1)
with torch.no_grad():
    target.reset_noise()
    tgt = r + 0.99 * target(s2).max(1)[0]
loss = F.smooth_l1_loss(q, tgt)
optimiser.zero_grad()
loss.backward()
online.reset_noise()
optimiser.step()
