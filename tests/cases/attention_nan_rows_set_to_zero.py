# %% [case]
# id: attention-nan-rows-set-to-zero
# source: attention over padded sets, rows without any key become nan and are set to zero
# family: modified
# fails: 3
# culprit: 1:13
# saved: 1:12
# needed: 3:2
# effect: same
# observe: [p.grad.clone() for p in pool.parameters()]
# note: softmax keeps attn, attn[isnan] = 0 overwrites it. Fix: attn = attn.masked_fill(torch.isnan(attn), 0).
# %%
import torch
import torch.nn as nn

class SetAttention(nn.Module):
    def __init__(self, d=4):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(d, d, bias=False) for _ in range(3))

    def forward(self, x, valid):
        s = self.q(x) @ self.k(x).transpose(-1, -2)
        s = s.masked_fill(~valid[:, None, :], -1e4)
        attn = s.softmax(-1)
        attn[torch.isnan(attn)] = 0.
        return (attn @ self.v(x)).sum(1)
# %%
torch.manual_seed(0)
pool = SetAttention()
x = torch.randn(3, 4, 4)
valid = torch.arange(4)[None] < torch.tensor([4, 2, 1])[:, None]
# %%
%time y = pool(x, valid)
(y ** 2).sum().backward()
# %% [fixed 1]
import torch
import torch.nn as nn

class SetAttention(nn.Module):
    def __init__(self, d=4):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(d, d, bias=False) for _ in range(3))

    def forward(self, x, valid):
        s = self.q(x) @ self.k(x).transpose(-1, -2)
        s = s.masked_fill(~valid[:, None, :], -1e4)
        attn = s.softmax(-1)
        attn = attn.masked_fill(torch.isnan(attn), 0.)
        return (attn @ self.v(x)).sum(1)
