# %% [case]
# id: zoneout-writes-data-of-hidden
# source: regularised RNN, zoneout done by writing .data of the new hidden state
# family: silent
# fails: -
# culprit: 1:15
# saved: 1:12
# needed: 3:3
# effect: truncates
# observe: [p.grad.clone() for p in rnn.parameters()]
# note: tanh keeps its result; the write through .data changes it unseen, so the gradient uses the zeroed values. Fix: multiply by a mask.
# %%
import torch
import torch.nn as nn

class ZoneoutRNN(nn.Module):
    def __init__(self, n_in=3, n_hid=6, p=0.3):
        super().__init__()
        self.i2h, self.h2h, self.p = nn.Linear(n_in, n_hid), nn.Linear(n_hid, n_hid), p

    def forward(self, xs):
        h = xs.new_zeros(xs.size(1), self.h2h.in_features)
        for x in xs:
            h = torch.tanh(self.i2h(x) + self.h2h(h))
            if self.training:
                drop = torch.rand_like(h) < self.p
                h.data[drop] = 0.
        return h
# %%
torch.manual_seed(9)
rnn = ZoneoutRNN()
xs, ys = torch.randn(5, 4, 3), torch.randn(4, 6)
# %%
torch.manual_seed(1)
loss = nn.functional.mse_loss(rnn(xs), ys)
loss.backward()
# %% [fixed 1]
import torch
import torch.nn as nn

class ZoneoutRNN(nn.Module):
    def __init__(self, n_in=3, n_hid=6, p=0.3):
        super().__init__()
        self.i2h, self.h2h, self.p = nn.Linear(n_in, n_hid), nn.Linear(n_hid, n_hid), p

    def forward(self, xs):
        h = xs.new_zeros(xs.size(1), self.h2h.in_features)
        for x in xs:
            h = torch.tanh(self.i2h(x) + self.h2h(h))
            if self.training:
                drop = torch.rand_like(h) < self.p
                h = h.masked_fill(drop, 0.)
        return h
