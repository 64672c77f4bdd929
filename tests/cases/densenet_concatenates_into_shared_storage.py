# %% [case]
# id: densenet-concatenates-into-shared-storage
# source: gpleiss/efficient_densenet_pytorch#28 (shared allocation), pytorch/pytorch#1340 ("Variables should never have out arguments")
# family: out_grad
# fails: 5
# culprit: 3:9
# saved: -
# needed: 3:9
# effect: same
# observe: [loss.detach()] + [p.grad.clone() for p in model.parameters()]
# note: memory-efficient DenseNet: the concatenation is written into a shared allocation with out=. That worked inside the original custom Function and works in the no_grad shape check, but raises as soon as the features require grad. Fix: plain torch.cat (and checkpoint the layer if memory is short).
# %%
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(28)
# %%
class SharedAllocation(object):
    """one piece of memory which every concatenation of a block uses"""
    def __init__(self, size):
        self.storage = torch.zeros(size)

    def type_as(self, t):
        self.storage = self.storage.type(t.type())
        return self

    def view_for(self, features):
        n, _, h, w = features[0].shape
        c = sum(f.size(1) for f in features)
        return self.storage[: n * c * h * w].view(n, c, h, w)
# %%
class _DenseLayer(nn.Module):
    def __init__(self, num_input, growth_rate, shared):
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(num_input), nn.Conv2d(num_input, growth_rate, 3, padding=1, bias=False)
        self.shared = shared

    def forward(self, *prev_features):
        out = self.shared.view_for(prev_features)
        concated = torch.cat(prev_features, dim=1, out=out)
        return self.conv1(F.relu(self.norm1(concated)))

class _DenseBlock(nn.Module):
    def __init__(self, num_layers, num_input, growth_rate, shared):
        super().__init__()
        for i in range(num_layers):
            self.add_module('denselayer%d' % (i + 1), _DenseLayer(num_input + i * growth_rate, growth_rate, shared))

    def forward(self, init_features):
        features = [init_features]
        for name, layer in self.named_children():
            features.append(layer(*features))
        return torch.cat(features, 1)
# %%
shared = SharedAllocation(2 * 16 * 6 * 6)
model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), _DenseBlock(3, 4, 2, shared), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(10, 2))
images, labels = torch.rand(2, 3, 6, 6), torch.tensor([0, 1])
with torch.no_grad():
    print(model(images).shape)   # OK
# %%
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
loss = F.cross_entropy(model(images), labels)
optimizer.zero_grad()
loss.backward()
optimizer.step()
print(loss.item())
# %% [fixed 3]
class _DenseLayer(nn.Module):
    def __init__(self, num_input, growth_rate, shared):
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(num_input), nn.Conv2d(num_input, growth_rate, 3, padding=1, bias=False)
        self.shared = shared

    def forward(self, *prev_features):
        concated = torch.cat(prev_features, dim=1)
        return self.conv1(F.relu(self.norm1(concated)))

class _DenseBlock(nn.Module):
    def __init__(self, num_layers, num_input, growth_rate, shared):
        super().__init__()
        for i in range(num_layers):
            self.add_module('denselayer%d' % (i + 1), _DenseLayer(num_input + i * growth_rate, growth_rate, shared))

    def forward(self, init_features):
        features = [init_features]
        for name, layer in self.named_children():
            features.append(layer(*features))
        return torch.cat(features, 1)
