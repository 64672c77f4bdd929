# %% [case]
# id: lottery-ticket-zeroes-weights
# source: magnitude pruning loop over named parameters
# family: leaf
# fails: 3
# culprit: 2:8
# saved: -
# needed: 2:8
# effect: same
# observe: [p.detach().clone() for p in mlp.parameters()]
# note: p[mask] = 0 writes into a leaf. Fix: under no_grad.
# %%
import torch
import torch.nn as nn
torch.manual_seed(0)
mlp = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
x, y = torch.randn(16, 4), torch.randint(0, 2, (16,))
# %%
def prune_by_percentile(model, q=0.5):
    masks = {}
    for name, p in model.named_parameters():
        if 'weight' not in name:
            continue
        thr = p.detach().abs().flatten().kthvalue(int(q * p.numel())).values
        masks[name] = p.abs() > thr
        p[p.abs() <= thr] = 0
    return masks
# %%
loss = nn.functional.cross_entropy(mlp(x), y)
loss.backward()
masks = prune_by_percentile(mlp)
print({k: m.float().mean().item() for k, m in masks.items()})
# %% [fixed 2]
def prune_by_percentile(model, q=0.5):
    masks = {}
    for name, p in model.named_parameters():
        if 'weight' not in name:
            continue
        thr = p.detach().abs().flatten().kthvalue(int(q * p.numel())).values
        masks[name] = p.abs() > thr
        with torch.no_grad():
            p[p.abs() <= thr] = 0
    return masks
