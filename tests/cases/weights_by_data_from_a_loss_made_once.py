# %% [case]
# id: weights-by-data-from-a-loss-made-once
# source: a textbook mistake in other words
# family: silent
# fails: -
# culprit: 3:5|3:6
# saved: 3:3|2:4
# needed: 3:4
# effect: other
# observe: [p.detach().clone() for p in (hidden, out)]
# note: as above, by `.data` in a helper's words, so that nothing is raised and each gradient is wrong. Human fix: the loss is computed in the loop.
# %%
import torch
torch.manual_seed(4)
inputs, labels = torch.randn(6, 2), torch.randn(6)
# %%
hidden = torch.randn(2, 5, requires_grad=True)
out = torch.randn(5, requires_grad=True)
def predict(batch):
    return torch.tanh(batch @ hidden) @ out
# %%
step = 0.05
error = (predict(inputs) - labels).square().mean()
while step > 1e-3:
    error.backward(retain_graph=True)
    hidden.data -= step * hidden.grad
    out.data -= step * out.grad
    hidden.grad = out.grad = None
    step = step / 2
# %% [fixed 3]
step = 0.05
while step > 1e-3:
    error = (predict(inputs) - labels).square().mean()
    error.backward()
    hidden.data -= step * hidden.grad
    out.data -= step * out.grad
    hidden.grad = out.grad = None
    step = step / 2
