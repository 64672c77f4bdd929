# %% [case]
# id: class-weights-from-inference-validation
# source: training with hardness weights that the validation pass computes
# family: inference
# fails: 3
# culprit: 1:13
# saved: 3:3
# needed: 3:3
# effect: same
# observe: [p.grad.clone() for p in model.parameters()]
# note: the weights are an inference tensor and cross_entropy would have to save it. Fix: torch.no_grad in evaluate.
# %%
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
val_x, val_y = torch.randn(12, 5), torch.arange(12) % 3

class Meter:
    def __init__(self): self.weights = torch.ones(3)
    def update(self, logits, y):
        err = (logits.argmax(1) != y).float()
        per_class = torch.stack([err[y == c].mean() for c in range(3)])
        self.weights = (per_class + 0.1) / (per_class + 0.1).sum()
meter = Meter()
# %%
@torch.inference_mode()
def validate(model, meter):
    model.eval()
    logits = model(val_x)
    meter.update(logits, val_y)
    model.train()
    return F.cross_entropy(logits, val_y).item()
# %%
print('val', validate(model, meter))
x, y = torch.randn(9, 5), torch.randint(0, 3, (9,))
loss = F.cross_entropy(model(x), y, weight=meter.weights)
loss.backward()
# %% [fixed 2]
@torch.no_grad()
def validate(model, meter):
    model.eval()
    logits = model(val_x)
    meter.update(logits, val_y)
    model.train()
    return F.cross_entropy(logits, val_y).item()
