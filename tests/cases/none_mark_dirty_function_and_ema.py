# %% [case]
# id: none-mark-dirty-function-and-ema
# source: custom in-place Function done properly, with EMA and gradient hooks
# family: none
# fails: -
# culprit: -
# saved: -
# needed: -
# effect: same
# observe: [w.grad]
# note: mark_dirty, .data in an EMA after the step, clamp under no_grad: healthy.
# %%
import torch
from torch import nn

class Scale_(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, s):
        ctx.s = s
        ctx.mark_dirty(x)
        return x.mul_(s)
    @staticmethod
    def backward(ctx, g):
        return g * ctx.s, None
# %%
torch.manual_seed(0)
w = torch.randn(3, 3, requires_grad=True)
ema = w.detach().clone()
opt = torch.optim.Adam([w], lr=0.1)
grads = []
w.register_post_accumulate_grad_hook(lambda p: grads.append(p.grad.norm().item()))
# %%
for step in range(3):
    h = torch.randn(4, 3) @ w
    h = Scale_.apply(h, 0.5)
    h.sub_(h.detach().mean(0))
    loss = h.logsumexp(1).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    ema.data.mul_(0.9).add_(w.data, alpha=0.1)
    with torch.no_grad():
        w.clamp_(-2, 2)
