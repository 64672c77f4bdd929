# %% [case]
# id: leaf-in-thread
# source: a textbook mistake in other words
# family: view_of_leaf
# fails: 2
# culprit: 1:6
# saved: -
# needed: 1:6
# effect: same
# observe: [w.detach().clone()]
# note: grad mode belongs to the thread, so a worker updates a leaf with gradients on
# %%
import torch
from concurrent.futures import ThreadPoolExecutor
torch.manual_seed(0)
w = torch.ones(4, requires_grad=True)
def nudge(k):
    w[k] -= 0.1 * k
    return k
# %%
with torch.no_grad():
    with ThreadPoolExecutor(1) as pool:
        print(list(pool.map(nudge, range(2))))
# %% [fixed 1]
import torch
from concurrent.futures import ThreadPoolExecutor
torch.manual_seed(0)
w = torch.ones(4, requires_grad=True)
def nudge(k):
    with torch.no_grad():
        w[k] -= 0.1 * k
    return k
