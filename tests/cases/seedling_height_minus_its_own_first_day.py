# %% [case]
# id: seedling-height-minus-its-own-first-day
# source: pytorch/pytorch#135487 (a -= a[:, :1] gives no error and a wrong result)
# family: silent
# fails: -
# culprit: 2:12
# saved: -
# needed: -
# effect: same
# observe: [p.detach().clone() for p in model.parameters()] + [track]
# note: curve[:, :1] is a view of curve, and its entries become zero while the subtraction is still running, so the later days are not made relative at all; the loss and its gradient are those of other numbers. Fix: curve = curve - curve[:, :1].
# %%
import torch
import torch.nn as nn

torch.manual_seed(135)
n_plants, n_days = 12, 6
light = torch.rand(n_plants, 3)
rate = light @ torch.tensor([0.8, 0.3, 0.5])
height = 2.0 + torch.rand(n_plants, 1) + rate[:, None] * torch.arange(n_days) * 0.4
growth = height - height[:, :1]            # growth since the day of planting
# %%
class GrowthModel(nn.Module):
    def __init__(self, hidden=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, hidden), nn.Softplus(), nn.Linear(hidden, n_days))
        nn.init.constant_(self.net[-1].bias, 2.5)

    def heights(self, light):
        return self.net(light)

    def forward(self, light):
        curve = self.heights(light)
        curve -= curve[:, :1]
        return curve

model = GrowthModel()
# %%
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
track = []
for epoch in range(30):
    predicted = model(light)
    loss = nn.functional.mse_loss(predicted, growth)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    track.append(loss.item())
print(track[0], track[-1])
# %% [fixed 2]
class GrowthModel(nn.Module):
    def __init__(self, hidden=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, hidden), nn.Softplus(), nn.Linear(hidden, n_days))
        nn.init.constant_(self.net[-1].bias, 2.5)

    def heights(self, light):
        return self.net(light)

    def forward(self, light):
        curve = self.heights(light)
        curve = curve - curve[:, :1]
        return curve

model = GrowthModel()
