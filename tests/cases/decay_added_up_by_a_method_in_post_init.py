# %% [case]
# id: decay-added-up-by-a-method-in-post-init
# source: shenweichen/DeepCTR-Torch#90, in other words
# family: modified
# fails: 3
# culprit: 1:26|1:17
# saved: 1:20
# needed: 1:25
# effect: same
# observe: [p.detach().clone() for p in tower.parameters()]
# note: __post_init__ of the dataclass computes the decay from the first weights; retain_graph=True keeps that graph alive, and pow has saved weights that optim.step() then updates in place. Fix: remember the weights, compute the decay in every batch; retain_graph is then needless.
# %%
from dataclasses import dataclass
import torch
from torch import nn
import torch.nn.functional as F

@dataclass
class Trainer:
    net: nn.Module
    lr: float = 0.05
    l2: float = 1e-2

    def __post_init__(self):
        self.optim = torch.optim.RMSprop(self.net.parameters(), lr=self.lr)
        self.decay = torch.zeros(())
        for layer in self.net:
            if hasattr(layer, 'weight'):
                self.add_decay(layer.weight)

    def add_decay(self, weight):
        self.decay = self.decay + self.l2 * weight.pow(2).sum()

    def run(self, batches):
        for words, label in batches:
            loss = F.cross_entropy(self.net(words), label) + self.decay
            self.optim.zero_grad(); loss.backward(retain_graph=True)
            self.optim.step()
# %%
torch.manual_seed(9)
tower = nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(12, 5), nn.Tanh(), nn.Linear(5, 3))
words, labels = torch.randint(10, (12, 3)), torch.randint(3, (12,))
# %%
trainer = Trainer(tower, l2=5e-3)
trainer.run(zip(words.chunk(3), labels.chunk(3)))
# %% [fixed 1]
from dataclasses import dataclass
import torch
from torch import nn
import torch.nn.functional as F

@dataclass
class Trainer:
    net: nn.Module
    lr: float = 0.05
    l2: float = 1e-2

    def __post_init__(self):
        self.optim = torch.optim.RMSprop(self.net.parameters(), lr=self.lr)
        self.decayed = []
        for layer in self.net:
            if hasattr(layer, 'weight'):
                self.add_decay(layer.weight)

    def add_decay(self, weight):
        self.decayed.append(weight)

    def decay(self):
        return sum(self.l2 * weight.pow(2).sum() for weight in self.decayed)

    def run(self, batches):
        for words, label in batches:
            loss = F.cross_entropy(self.net(words), label) + self.decay()
            self.optim.zero_grad(); loss.backward()
            self.optim.step()
