# %% [case]
# id: prototypes-from-inference-mode-evaluate
# source: few-shot classifier whose evaluate function returns class prototypes
# family: inference
# fails: 3
# culprit: 2:5
# saved: 3:3
# needed: 3:3
# effect: same
# observe: [p.grad.clone() for p in encoder.parameters()]
# note: the prototypes are made by a function under inference_mode and cannot be saved for backward. Fix: torch.no_grad.
# %%
import torch
from torch import nn
torch.manual_seed(2)
encoder = nn.Sequential(nn.Linear(8, 10), nn.ReLU(), nn.Linear(10, 4))
support_x, support_y = torch.randn(12, 8), torch.arange(12) % 3
query_x, query_y = torch.randn(6, 8), torch.arange(6) % 3
# %%
@torch.inference_mode()
def build_prototypes(encoder, x, y, n_way=3):
    encoder.eval()
    z = encoder(x)
    protos = torch.stack([z[y == c].mean(0) for c in range(n_way)])
    encoder.train()
    return protos
# %%
protos = build_prototypes(encoder, support_x, support_y)
z = encoder(query_x)
sims = z @ protos.t()
loss = nn.functional.cross_entropy(sims, query_y)
loss.backward()
# %% [fixed 2]
@torch.no_grad()
def build_prototypes(encoder, x, y, n_way=3):
    encoder.eval()
    z = encoder(x)
    protos = torch.stack([z[y == c].mean(0) for c in range(n_way)])
    encoder.train()
    return protos
