# %% [case]
# id: model-built-inside-inference-mode
# source: notebook whose model loading helper runs under inference_mode
# family: inference
# fails: 3
# culprit: 1:7
# saved: 3:1
# needed: 3:1
# effect: same
# observe: [p.grad.clone() for p in model.parameters()]
# note: the parameters themselves are inference tensors. Fix: build the model outside of inference_mode.
# %%
import torch
from torch import nn

@torch.inference_mode()
def load_model(n_in=5, n_out=2):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(n_in, 8), nn.ReLU(), nn.Linear(8, n_out))
    # check that it works
    model(torch.zeros(1, n_in))
    return model
# %%
model = load_model()
x, y = torch.randn(6, 5), torch.randint(0, 2, (6,))
# %%
logits = model(x)
loss = nn.functional.cross_entropy(logits, y)
loss.backward()
# %% [fixed 1]
import torch
from torch import nn

@torch.no_grad()
def load_model(n_in=5, n_out=2):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(n_in, 8), nn.ReLU(), nn.Linear(8, n_out))
    # check that it works
    model(torch.zeros(1, n_in))
    return model
