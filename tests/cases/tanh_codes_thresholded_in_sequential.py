# %% [case]
# id: tanh-codes-thresholded-in-sequential
# source: sparse autoencoder whose codes are thresholded by an in-place module
# family: modified
# fails: 4
# culprit: 2:8
# saved: 2:8
# needed: 4:3
# effect: same
# observe: [p.grad.clone() for p in sae.parameters()]
# note: Tanh keeps its result and Threshold(inplace=True) right after it overwrites it, both inside nn.Sequential. Fix: no inplace.
# %%
import torch, torch.nn as nn

def make_encoder(sizes, thr=0.1):
    layers = []
    for a, b in zip(sizes[:-1], sizes[1:]):
        layers += [nn.Linear(a, b), nn.Tanh()]
    layers.append(nn.Threshold(thr, 0., inplace=True))
    return nn.Sequential(*layers)
# %%
class SparseAE(nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        self.enc = make_encoder(sizes)
        self.dec = nn.Linear(sizes[-1], sizes[0])
    def forward(self, x):
        x = (x - x.mean(0)) / x.std(0)
        code = self.enc(x)
        return self.dec(code), code
# %%
torch.manual_seed(0)
sae = SparseAE(5, 12, 8)
X = torch.randn(20, 5)
# %%
rec, code = sae(X)
err = nn.functional.smooth_l1_loss(rec, X) + 1e-3 * code.abs().mean()
err.backward()
# %% [fixed 1]
import torch, torch.nn as nn

def make_encoder(sizes, thr=0.1):
    layers = []
    for a, b in zip(sizes[:-1], sizes[1:]):
        layers += [nn.Linear(a, b), nn.Tanh()]
    layers.append(nn.Threshold(thr, 0.))
    return nn.Sequential(*layers)
