# %% [case]
# id: rnn-state-on-holder
# source: a textbook mistake in other words
# family: second_backward
# fails: 3
# culprit: -
# saved: -
# needed: 3:4
# effect: truncates
# observe: [p.detach().clone() for p in net.parameters()]
# note: a recurrent state on an object that is no module
# %%
import torch
from torch import nn
torch.manual_seed(0)
class Agent:
    def __init__(self, net):
        self.net = net
        self.belief = torch.zeros(1, 4)
    def observe(self, o):
        self.belief = torch.tanh(self.net(torch.cat([o, self.belief], 1)))
        return self.belief
# %%
net = nn.Linear(6, 4)
agent = Agent(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
# %%
for t in range(3):
    b = agent.observe(torch.ones(1, 2) * t)
    opt.zero_grad()
    (b - 1).pow(2).sum().backward()
    opt.step()
# %% [fixed 1]
import torch
from torch import nn
torch.manual_seed(0)
class Agent:
    def __init__(self, net):
        self.net = net
        self.belief = torch.zeros(1, 4)
    def observe(self, o):
        self.belief = torch.tanh(self.net(torch.cat([o, self.belief.detach()], 1)))
        return self.belief
