# %% [case]
# id: recurrent-imputation-fills-input
# source: recurrent imputation of missing values, estimates written into the series
# family: modified
# fails: 3
# culprit: 1:21
# saved: 1:22
# needed: 3:2
# effect: same
# observe: [p.grad.clone() for p in imputer.parameters()]
# note: the cell saved x[:, t], a view of the series; filling a later step counts as a change of it. Fix: torch.where on the step.
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F

class Imputer(nn.Module):
    def __init__(self, d=3, h=6):
        super().__init__()
        self.rnn = nn.GRUCell(2 * d, h)
        self.reg = nn.Linear(h, d)
        self.gamma = nn.Parameter(torch.zeros(d))

    def forward(self, x, mask):
        B, T, D = x.shape
        h = x.new_zeros(B, self.rnn.hidden_size)
        loss = 0.
        x = x.clone()
        for t in range(T):
            x_hat = self.reg(h)
            m = mask[:, t]
            loss = loss + (m * (x[:, t] - x_hat).abs()).sum() / (m.sum() + 1e-5)
            x[:, t][m == 0] = x_hat[m == 0]
            decay = torch.exp(-F.relu(self.gamma)) * x[:, t]
            h = self.rnn(torch.cat([decay, m], 1), h)
        return x, loss / T
# %%
torch.manual_seed(0)
imputer = Imputer()
series = torch.randn(2, 4, 3)
mask = (torch.rand(2, 4, 3) > 0.3).float()
# %%
filled, loss = imputer(series, mask)
loss.backward()
# %% [fixed 1]
import torch
import torch.nn as nn
import torch.nn.functional as F

class Imputer(nn.Module):
    def __init__(self, d=3, h=6):
        super().__init__()
        self.rnn = nn.GRUCell(2 * d, h)
        self.reg = nn.Linear(h, d)
        self.gamma = nn.Parameter(torch.zeros(d))

    def forward(self, x, mask):
        B, T, D = x.shape
        h = x.new_zeros(B, self.rnn.hidden_size)
        loss = 0.
        out = []
        for t in range(T):
            x_hat = self.reg(h)
            m = mask[:, t]
            loss = loss + (m * (x[:, t] - x_hat).abs()).sum() / (m.sum() + 1e-5)
            x_t = torch.where(m == 0, x_hat, x[:, t])
            out.append(x_t)
            decay = torch.exp(-F.relu(self.gamma)) * x_t
            h = self.rnn(torch.cat([decay, m], 1), h)
        return torch.stack(out, 1), loss / T
