# %% [case]
# id: canvas-add-function-not-marked-dirty
# source: https://github.com/pytorch/pytorch/issues/5871 (Function backward when forward output is in-place of forward input and input is not leaf)
# family: silent
# fails: -
# culprit: 2:7|2:8|3:13
# saved: -
# needed: 4:4
# effect: same
# observe: [p.grad for p in painter.parameters()]
# note: A Function adds a stroke to a part of the canvas in place and does not say so; the caller goes on with the canvas, as after any in-place operation. The canvas has the strokes' values but not their history: the strokes' layer gets no gradient. Fix: ctx.mark_dirty.
# %%
import torch
from torch import nn
from torch.autograd import Function
torch.manual_seed(5871)
# %%
class InPlaceAdd(Function):
    """adds b to a part of a without a copy of a"""
    @staticmethod
    def forward(ctx, a, b, top, left):
        h, w = b.shape[-2:]
        ctx.box = (slice(None), slice(top, top + h), slice(left, left + w))
        a[ctx.box] += b
        return a

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, grad_output[ctx.box], None, None

add_in_place = InPlaceAdd.apply
# %%
class Painter(nn.Module):
    def __init__(self, strokes=3, size=8, stroke_size=3):
        super().__init__()
        self.size, self.stroke_size = size, stroke_size
        self.background = nn.Linear(4, size * size)
        self.stroke = nn.Linear(4, strokes * stroke_size ** 2)
        self.places = [(0, 0), (2, 3), (4, 1)][:strokes]

    def forward(self, z):
        canvas = torch.tanh(self.background(z)).view(-1, self.size, self.size) + 1
        strokes = self.stroke(z).view(len(z), len(self.places), self.stroke_size, self.stroke_size)
        for i, (top, left) in enumerate(self.places):
            add_in_place(canvas, strokes[:, i], top, left)
        return canvas
# %%
painter = Painter()
z, picture = torch.randn(5, 4), torch.rand(5, 8, 8)
loss = nn.functional.mse_loss(painter(z), picture)
loss.backward()
for name, p in painter.named_parameters():
    print(name, None if p.grad is None else p.grad.norm().item())
# %% [fixed 2]
class InPlaceAdd(Function):
    """adds b to a part of a without a copy of a"""
    @staticmethod
    def forward(ctx, a, b, top, left):
        h, w = b.shape[-2:]
        ctx.box = (slice(None), slice(top, top + h), slice(left, left + w))
        a[ctx.box] += b
        ctx.mark_dirty(a)
        return a

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, grad_output[ctx.box], None, None

add_in_place = InPlaceAdd.apply
