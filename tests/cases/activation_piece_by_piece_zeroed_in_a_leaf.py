# %% [case]
# id: activation-piece-by-piece-zeroed-in-a-leaf
# source: activations of a language model, switched off at some places
# family: view_of_leaf
# fails: 3
# culprit: 1:15
# saved: -
# needed: -
# effect: same
# observe: [prompt.grad.clone(), score.detach()]
# note: a piece of what was handed in is written by a name of its own; a copy of the whole is meant. Fix: h = h.clone().
# %%
import torch
import torch.nn as nn
torch.manual_seed(10)

class Reader(nn.Module):
    def __init__(self, width, words):
        super().__init__()
        self.mix, self.out = nn.Linear(width, width), nn.Linear(width, words)
        self.gaps = []

    def without(self, h, places):
        i = 0
        while i < len(places):
            piece = h.narrow(1, places[i], 1)
            piece *= 0
            i += 1
        return h

    def forward(self, h):
        h = self.without(h, self.gaps)
        return self.out(torch.tanh(self.mix(h)))
# %%
reader = Reader(4, 5).requires_grad_(False)
prompt = nn.Parameter(torch.randn(2, 6, 4))
reader.gaps = [0, 3]
# %%
score = reader(prompt)[:, -1].log_softmax(-1)[:, 2].sum()
score.backward()
# %% [fixed 1]
import torch
import torch.nn as nn
torch.manual_seed(10)

class Reader(nn.Module):
    def __init__(self, width, words):
        super().__init__()
        self.mix, self.out = nn.Linear(width, width), nn.Linear(width, words)
        self.gaps = []

    def without(self, h, places):
        h = h.clone()
        i = 0
        while i < len(places):
            piece = h.narrow(1, places[i], 1)
            piece *= 0
            i += 1
        return h

    def forward(self, h):
        h = self.without(h, self.gaps)
        return self.out(torch.tanh(self.mix(h)))
