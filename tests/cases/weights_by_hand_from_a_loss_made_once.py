# %% [case]
# id: weights-by-hand-from-a-loss-made-once
# source: a textbook mistake in other words
# family: modified
# fails: 3
# culprit: 3:7|3:8
# saved: 3:2
# needed: 3:5
# effect: other
# observe: [w1.detach().clone(), w2.detach().clone(), loss.detach()]
# note: the loss is computed once ahead of the loop, retain_graph=True, weights updated by hand. Human fix: the loss is computed in the loop.
# %%
import torch
torch.manual_seed(3)
x, y = torch.randn(8, 3), torch.randn(8, 1)
# %%
w1 = torch.randn(3, 4, requires_grad=True)
w2 = torch.randn(4, 1, requires_grad=True)
# %%
lr = 0.01
pred = (x @ w1).clamp(min=0) @ w2
loss = (pred - y).pow(2).sum()
for i in range(5):
    loss.backward(retain_graph=True)
    with torch.no_grad():
        w1 -= lr * w1.grad
        w2 -= lr * w2.grad
    w1.grad.zero_()
    w2.grad.zero_()
# %% [fixed 3]
lr = 0.01
for i in range(5):
    pred = (x @ w1).clamp(min=0) @ w2
    loss = (pred - y).pow(2).sum()
    loss.backward()
    with torch.no_grad():
        w1 -= lr * w1.grad
        w2 -= lr * w2.grad
    w1.grad.zero_()
    w2.grad.zero_()
