# %% [case]
# id: target-feature-once
# source: a textbook mistake in other words
# family: second_backward
# fails: 2
# culprit: -
# saved: -
# needed: 2:6
# effect: other
# observe: [img.detach().clone()]
# note: a target feature is kept by a module with its graph
# %%
import torch
from torch import nn
torch.manual_seed(0)
vgg = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
img = torch.randn(1, 4, requires_grad=True); style = torch.randn(1, 4)
class StyleLoss(nn.Module):
    def __init__(self, feature):
        super().__init__()
        self.goal = feature
    def forward(self, f):
        self.loss = (f.T @ f - self.goal.T @ self.goal).pow(2).mean()
        return f
# %%
crit = StyleLoss(vgg(style))
opt = torch.optim.Adam([img])
for _ in range(3):
    opt.zero_grad()
    crit(vgg(img))
    crit.loss.backward()
    opt.step()
# %% [fixed 1]
import torch
from torch import nn
torch.manual_seed(0)
vgg = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
img = torch.randn(1, 4, requires_grad=True); style = torch.randn(1, 4)
class StyleLoss(nn.Module):
    def __init__(self, feature):
        super().__init__()
        self.goal = feature.detach()
    def forward(self, f):
        self.loss = (f.T @ f - self.goal.T @ self.goal).pow(2).mean()
        return f
