# %% [case]
# id: penalty-on-weight-norm-before-forward
# source: https://github.com/facebookresearch/higher/issues/14
# family: second_backward
# fails: 4
# culprit: 3:13|3:5|3:15
# saved: 2:9
# needed: 3:15
# effect: same
# observe: [p.detach().clone() for p in clf.parameters()]
# note: weight_norm (the hook kind) recomputes module.weight only in forward, so a penalty on module.weight taken before the forward uses the weight of the last iteration, whose graph is freed. Fix: take the penalty after the forward of the batch.
# %%
import warnings
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import weight_norm
warnings.simplefilter('ignore')
torch.manual_seed(14)
# %%
class Classifier(nn.Module):
    def __init__(self, inp=6, hid=8, classes=3):
        super().__init__()
        self.features = nn.ModuleList([weight_norm(nn.Linear(inp, hid)), weight_norm(nn.Linear(hid, hid))])
        self.head = nn.Linear(hid, classes)

    def forward(self, x):
        for layer in self.features:
            x = F.elu(layer(x))
        return self.head(x)
# %%
def orthogonality(model, strength=1e-2):
    reg = 0.
    for m in model.modules():
        if hasattr(m, 'weight_g'):
            gram = m.weight @ m.weight.t()
            reg = reg + (gram - torch.eye(len(gram))).pow(2).sum()
    return strength * reg

def train_one_epoch(model, loader, optimizer):
    losses = []
    for x, y in loader:
        optimizer.zero_grad()
        loss = orthogonality(model)
        loss = loss + F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
# %%
clf = Classifier()
optimizer_b = torch.optim.SGD(clf.parameters(), lr=0.1)
loader = [(torch.randn(10, 6), torch.randint(0, 3, (10,))) for _ in range(4)]
history = train_one_epoch(clf, loader, optimizer_b)
print(history)
# %% [fixed 3]
def orthogonality(model, strength=1e-2):
    reg = 0.
    for m in model.modules():
        if hasattr(m, 'weight_g'):
            gram = m.weight @ m.weight.t()
            reg = reg + (gram - torch.eye(len(gram))).pow(2).sum()
    return strength * reg

def train_one_epoch(model, loader, optimizer):
    losses = []
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss = loss + orthogonality(model)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
