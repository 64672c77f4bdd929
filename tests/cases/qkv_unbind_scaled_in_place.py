# %% [case]
# id: qkv-unbind-scaled-in-place
# source: vision transformer block, q scaled in place after unbind
# family: multi_output_view
# fails: 3
# culprit: 1:16
# saved: -
# needed: 1:16
# effect: same
# observe: [attn.qkv.weight.grad.clone()]
# note: unbind gives several views, q.mul_ is refused. Fix: q = q * self.scale.
# %%
import torch
import torch.nn as nn

class Attention(nn.Module):
    def __init__(self, dim, num_heads=2):
        super().__init__()
        self.num_heads = num_heads
        self.scale = (dim // num_heads) ** -0.5
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        attn = (q.mul_(self.scale) @ k.transpose(-2, -1)).softmax(dim=-1)
        x = (attn @ v).transpose(1, 2).reshape(B, N, C)
        return self.proj(x)
# %%
torch.manual_seed(0)
attn = Attention(8)
tokens = torch.randn(2, 5, 8)
# %%
y = attn(tokens)
y.mean().backward()
# %% [fixed 1]
import torch
import torch.nn as nn

class Attention(nn.Module):
    def __init__(self, dim, num_heads=2):
        super().__init__()
        self.num_heads = num_heads
        self.scale = (dim // num_heads) ** -0.5
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        attn = ((q * self.scale) @ k.transpose(-2, -1)).softmax(dim=-1)
        x = (attn @ v).transpose(1, 2).reshape(B, N, C)
        return self.proj(x)
