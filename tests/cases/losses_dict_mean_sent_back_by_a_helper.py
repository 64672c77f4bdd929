# %% [case]
# id: losses-dict-mean-sent-back-by-a-helper
# source: a textbook mistake in other words
# family: second_backward
# fails: 3
# culprit: -
# saved: -
# needed: 2:6
# effect: other
# observe: [slope.detach().clone(), curve.detach().clone()]
# note: a dict of losses by epoch, torch.autograd.grad of their mean, plain tensors. Human fix: the record is detached, the gradient is that of the current loss.
# %%
import torch
torch.manual_seed(121)
t = torch.linspace(0, 1, 7)
heights = 2 * t - 3 * t.square() + 0.01 * torch.randn(7)
slope, curve = (torch.zeros(1, requires_grad=True) for _ in "ab")
# %%
def misfit():
    path = slope * t + curve.exp() * t.square()
    return (path - heights).square().mean()

def downhill(of, tensors, lr=0.3):
    for x, g in zip(tensors, torch.autograd.grad(of, tensors)):
        x.data -= lr * g
# %%
record = {}
epoch = 0
while (epoch := epoch + 1) <= 4:
    now = misfit()
    record[f"epoch {epoch}"] = now
    so_far = torch.stack([*record.values()]).mean()
    downhill(so_far, [slope, curve])
    print(epoch, so_far.item())
# %% [fixed 3]
record = {}
epoch = 0
while (epoch := epoch + 1) <= 4:
    now = misfit()
    record[f"epoch {epoch}"] = now.detach()
    so_far = torch.stack([*record.values()]).mean()
    downhill(now, [slope, curve])
    print(epoch, so_far.item())
