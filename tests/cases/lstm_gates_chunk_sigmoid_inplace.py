# %% [case]
# id: lstm-gates-chunk-sigmoid-inplace
# source: hand written LSTM cell with in-place activations on the chunks
# family: multi_output_view
# fails: 3
# culprit: 1:14
# saved: -
# needed: 1:14
# effect: same
# observe: [p.grad.clone() for p in cell.parameters()]
# note: chunk gives several views of one tensor, none of which may be changed in place. Fix: i = i.sigmoid() and so on.
# %%
import torch
import torch.nn as nn

class MyLSTMCell(nn.Module):
    def __init__(self, n_in, n_hid):
        super().__init__()
        self.x2h = nn.Linear(n_in, 4 * n_hid)
        self.h2h = nn.Linear(n_hid, 4 * n_hid, bias=False)

    def forward(self, x, state):
        h, c = state
        gates = self.x2h(x) + self.h2h(h)
        i, f, g, o = gates.chunk(4, dim=1)
        i.sigmoid_()
        f.sigmoid_()
        g.tanh_()
        o.sigmoid_()
        c = f * c + i * g
        h = o * torch.tanh(c)
        return h, c
# %%
torch.manual_seed(0)
cell = MyLSTMCell(3, 5)
seq = torch.randn(4, 2, 3)
state = (torch.zeros(2, 5), torch.zeros(2, 5))
# %%
for x in seq:
    state = cell(x, state)
loss = state[0].pow(2).sum()
loss.backward()
# %% [fixed 1]
import torch
import torch.nn as nn

class MyLSTMCell(nn.Module):
    def __init__(self, n_in, n_hid):
        super().__init__()
        self.x2h = nn.Linear(n_in, 4 * n_hid)
        self.h2h = nn.Linear(n_hid, 4 * n_hid, bias=False)

    def forward(self, x, state):
        h, c = state
        gates = self.x2h(x) + self.h2h(h)
        i, f, g, o = gates.chunk(4, dim=1)
        i = i.sigmoid()
        f = f.sigmoid()
        g = g.tanh()
        o = o.sigmoid()
        c = f * c + i * g
        h = o * torch.tanh(c)
        return h, c
