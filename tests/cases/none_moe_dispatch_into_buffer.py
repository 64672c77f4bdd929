# %% [case]
# id: none-moe-dispatch-into-buffer
# source: mixture of experts, tokens dispatched by index into a zero buffer
# family: none
# fails: -
# culprit: -
# saved: -
# needed: -
# effect: same
# observe: [p.grad for p in moe.parameters()]
# note: index assignment into a fresh buffer and gradient hooks are healthy.
# %%
import torch
from torch import nn
import torch.nn.functional as F

class MoE(nn.Module):
    def __init__(self, d=6, n=3):
        super().__init__()
        self.gate = nn.Linear(d, n)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(d, d), nn.ReLU(inplace=True), nn.Linear(d, d)) for _ in range(n))
    def forward(self, x):
        w = self.gate(x).softmax(-1)
        top, idx = w.topk(2, -1)
        top /= top.sum(-1, keepdim=True).detach()
        out = torch.zeros_like(x)
        for e, f in enumerate(self.experts):
            tok, slot = (idx == e).nonzero(as_tuple=True)
            out[tok] += top[tok, slot, None] * f(x[tok])
        return out
# %%
torch.manual_seed(0)
moe = MoE()
for p in moe.parameters():
    p.register_hook(lambda g: g.clamp(-1, 1))
opt = torch.optim.AdamW(moe.parameters())
x, y = torch.randn(10, 6), torch.randn(10, 6)
# %%
for step in range(3):
    loss = F.mse_loss(moe(x), y)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(moe.parameters(), 1.0)
    opt.step()
    with torch.no_grad():
        for p in moe.parameters(): p.mul_(0.999)
