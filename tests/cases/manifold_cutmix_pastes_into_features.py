# %% [case]
# id: manifold-cutmix-pastes-into-features
# source: feature-level CutMix inside a small convolutional network
# family: modified
# fails: 3
# culprit: 1:21
# saved: 1:18
# needed: 3:4
# effect: same
# observe: [p.grad.clone() for p in net.parameters()]
# note: relu keeps its result h and the pasted box overwrites a part of it. Fix: h = h.clone() before the paste.
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F

def rand_bbox(H, W, lam):
    r = (1 - lam) ** 0.5
    h, w = int(H * r), int(W * r)
    y, x = (H - h) // 2, (W - w) // 2
    return y, x, y + h, x + w

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.fc = nn.Linear(4, 3)

    def forward(self, x, perm=None, lam=1.):
        h = F.relu(self.c1(x))
        if perm is not None:
            y1, x1, y2, x2 = rand_bbox(h.size(2), h.size(3), lam)
            h[:, :, y1:y2, x1:x2] = h[perm, :, y1:y2, x1:x2]
        h = F.relu(self.c2(h))
        return self.fc(h.mean((2, 3)))
# %%
torch.manual_seed(0)
net = Net()
x, y = torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 2, 1])
# %%
perm, lam = torch.tensor([2, 3, 0, 1]), 0.75
logits = net(x, perm, lam)
loss = lam * F.cross_entropy(logits, y) + (1 - lam) * F.cross_entropy(logits, y[perm])
loss.backward()
# %% [fixed 1]
import torch
import torch.nn as nn
import torch.nn.functional as F

def rand_bbox(H, W, lam):
    r = (1 - lam) ** 0.5
    h, w = int(H * r), int(W * r)
    y, x = (H - h) // 2, (W - w) // 2
    return y, x, y + h, x + w

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.fc = nn.Linear(4, 3)

    def forward(self, x, perm=None, lam=1.):
        h = F.relu(self.c1(x))
        if perm is not None:
            y1, x1, y2, x2 = rand_bbox(h.size(2), h.size(3), lam)
            h = h.clone()
            h[:, :, y1:y2, x1:x2] = h[perm, :, y1:y2, x1:x2]
        h = F.relu(self.c2(h))
        return self.fc(h.mean((2, 3)))
