# %% [case]
# id: overlapping-windows-centred-in-place
# source: https://github.com/pytorch/pytorch/issues/98143, https://github.com/pytorch/pytorch/issues/165409 (in-place operation on overlapping unfold windows, nothing raised in eager); mechanism from the thread, notebook ours
# family: silent
# fails: -
# culprit: 2:12
# saved: -
# needed: 4:5
# effect: other
# observe: [p.grad.clone() for p in model.parameters()] + [loss.detach()]
# note: the windows of unfold share memory; subtracting each window's mean in place subtracts from the neighbours too, and expand's check for overlap does not see it. Values and gradient are wrong. Fix: subtract out of place.
# %%
import torch
import torch.nn as nn
torch.manual_seed(98143)
# %%
class WindowEnergy(nn.Module):
    """learnable smoothing, then the local energy of each centred sliding window"""
    def __init__(self, width=4):
        super().__init__()
        self.width = width
        self.smooth = nn.Conv1d(1, 1, 3, padding=1)
        self.head = nn.Linear(1, 1)
    def forward(self, signal):
        s = self.smooth(signal.unsqueeze(1)).squeeze(1)
        windows = s.unfold(1, self.width, 1)
        # remove the local offset
        windows -= windows.mean(-1, keepdim=True)
        energy = windows.pow(2).mean(-1)
        return self.head(energy.unsqueeze(-1)).squeeze(-1)
# %%
signals = torch.randn(3, 10).cumsum(1)
target = torch.rand(3, 7)
# %%
model = WindowEnergy()
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
loss = (model(signals) - target).pow(2).mean()
optimizer.zero_grad()
loss.backward()
optimizer.step()
print(loss.item())
# %% [fixed 2]
class WindowEnergy(nn.Module):
    """learnable smoothing, then the local energy of each centred sliding window"""
    def __init__(self, width=4):
        super().__init__()
        self.width = width
        self.smooth = nn.Conv1d(1, 1, 3, padding=1)
        self.head = nn.Linear(1, 1)
    def forward(self, signal):
        s = self.smooth(signal.unsqueeze(1)).squeeze(1)
        windows = s.unfold(1, self.width, 1)
        # remove the local offset
        windows = windows - windows.mean(-1, keepdim=True)
        energy = windows.pow(2).mean(-1)
        return self.head(energy.unsqueeze(-1)).squeeze(-1)
