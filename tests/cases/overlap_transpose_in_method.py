# %% [case]
# id: overlap-transpose-in-method
# source: a textbook mistake in other words
# family: overlap
# fails: 2
# culprit: 1:6
# saved: -
# needed: 1:6
# effect: same
# observe: [k.detach().clone()]
# note: a row is written with a transposed view of itself
# %%
import torch
torch.manual_seed(0)
class Kernel:
    def __init__(self, k): self.k = k
    def flip(self):
        self.k[1] = self.k[1].transpose(-2, -1)
        return self.k.sum()
k = torch.randn(2, 3, 3)
# %%
Kernel(k).flip()
# %% [fixed 1]
import torch
torch.manual_seed(0)
class Kernel:
    def __init__(self, k): self.k = k
    def flip(self):
        self.k[1] = self.k[1].transpose(-2, -1).clone()
        return self.k.sum()
k = torch.randn(2, 3, 3)
