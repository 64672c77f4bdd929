# %% [case]
# id: causal-mask-expanded-then-padded
# source: small GPT, causal mask expanded over the batch and combined with padding
# family: overlap
# fails: 3
# culprit: 1:16
# saved: -
# needed: 1:16
# effect: same
# observe: [loss.detach(), attn.qkv.weight.grad.clone()]
# note: the mask is an expand of one T x T matrix, &= would write all sentences at once. Fix: .clone() after expand.
# %%
import math
import torch
import torch.nn as nn

class SelfAttention(nn.Module):
    def __init__(self, d=6, block_size=5):
        super().__init__()
        self.qkv = nn.Linear(d, 3 * d)
        self.register_buffer('bias', torch.tril(torch.ones(block_size, block_size, dtype=torch.bool)))

    def forward(self, x, pad):
        B, T, C = x.shape
        q, k, v = self.qkv(x).split(C, dim=2)
        mask = self.bias[:T, :T].expand(B, T, T)
        # nobody looks at padding
        mask &= ~pad[:, None, :]
        att = (q @ k.transpose(-2, -1)) / math.sqrt(C)
        att = att.masked_fill(~mask, -1e9).softmax(-1)
        return att @ v
# %%
torch.manual_seed(0)
attn = SelfAttention()
x = torch.randn(3, 5, 6)
pad = torch.arange(5)[None] >= torch.tensor([5, 4, 2])[:, None]
# %%
loss = attn(x, pad).pow(2).mean()
loss.backward()
# %% [fixed 1]
import math
import torch
import torch.nn as nn

class SelfAttention(nn.Module):
    def __init__(self, d=6, block_size=5):
        super().__init__()
        self.qkv = nn.Linear(d, 3 * d)
        self.register_buffer('bias', torch.tril(torch.ones(block_size, block_size, dtype=torch.bool)))

    def forward(self, x, pad):
        B, T, C = x.shape
        q, k, v = self.qkv(x).split(C, dim=2)
        mask = self.bias[:T, :T].expand(B, T, T).clone()
        # nobody looks at padding
        mask &= ~pad[:, None, :]
        att = (q @ k.transpose(-2, -1)) / math.sqrt(C)
        att = att.masked_fill(~mask, -1e9).softmax(-1)
        return att @ v
