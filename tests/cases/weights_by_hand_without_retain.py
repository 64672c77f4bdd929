# %% [case]
# id: weights-by-hand-without-retain
# source: a textbook mistake in other words
# family: second_backward
# fails: 3
# culprit: 3:3
# saved: -
# needed: 3:3
# effect: other
# observe: [p.detach().clone() for p in weights]
# note: the loss is computed once ahead of the loop, weights of a list are updated by hand. Human fix: the loss is computed in the loop.
# %%
import torch
torch.manual_seed(5)
x, y = torch.randn(8, 3), torch.randn(8, 1)
weights = [torch.randn(3, 4, requires_grad=True), torch.randn(4, 1, requires_grad=True)]
# %%
def model(x):
    return (x @ weights[0]).relu() @ weights[1]
# %%
loss = (model(x) - y).pow(2).mean()
for i in range(5):
    loss.backward()
    with torch.no_grad():
        for w in weights:
            w -= 0.01 * w.grad
            w.grad.zero_()
# %% [fixed 3]
for i in range(5):
    loss = (model(x) - y).pow(2).mean()
    loss.backward()
    with torch.no_grad():
        for w in weights:
            w -= 0.01 * w.grad
            w.grad.zero_()
