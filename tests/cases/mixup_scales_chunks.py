# %% [case]
# id: mixup-scales-chunks
# source: feature mixup between the two halves of a batch
# family: multi_output_view
# fails: 3
# culprit: 2:6
# saved: -
# needed: 2:6
# effect: same
# observe: [p.grad.clone() for p in enc.parameters()]
# note: a and b come from chunk and cannot be changed in place. Fix: a = lam * a + (1 - lam) * b.
# %%
import numpy as np
import torch
import torch.nn as nn
np.random.seed(0); torch.manual_seed(0)
enc = nn.Sequential(nn.Linear(5, 8), nn.Tanh())
clf = nn.Linear(8, 3)
# %%
def manifold_mixup(feats, targets, alpha=0.4):
    lam = float(np.random.beta(alpha, alpha))
    a, b = feats.chunk(2)
    ya, yb = targets.chunk(2)
    # a <- lam a + (1-lam) b
    a *= lam
    a += (1 - lam) * b
    return a, ya, yb, lam
# %%
xb, yb = torch.randn(8, 5), torch.randint(0, 3, (8,))
mixed, y1, y2, lam = manifold_mixup(enc(xb), yb)
out = clf(mixed)
ce = nn.functional.cross_entropy
loss = lam * ce(out, y1) + (1 - lam) * ce(out, y2)
loss.backward()
# %% [fixed 2]
def manifold_mixup(feats, targets, alpha=0.4):
    lam = float(np.random.beta(alpha, alpha))
    a, b = feats.chunk(2)
    ya, yb = targets.chunk(2)
    # a <- lam a + (1-lam) b
    a = a * lam + (1 - lam) * b
    return a, ya, yb, lam
