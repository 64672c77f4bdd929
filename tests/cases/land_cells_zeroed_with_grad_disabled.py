# %% [case]
# id: land-cells-zeroed-with-grad-disabled
# source: ocean model emulator, land cells set to zero in the fields of the predicted state
# family: silent
# fails: -
# culprit: 1:21
# saved: -
# needed: 3:3
# effect: same
# observe: [p.grad.clone() for p in emulator.parameters()]
# note: the land cells of each field are set to zero with gradients disabled, so the loss there still reaches the gain and the offset. Nothing is raised. Fix: torch.where with gradient.
# %%
import torch
from torch import nn

class Emulator(nn.Module):
    FIELDS = ('temp', 'salt')

    def __init__(self, sea):
        super().__init__()
        self.register_buffer('sea', sea)
        self.convs = nn.ModuleDict({f: nn.Conv2d(2, 1, 3, padding=1, bias=False) for f in self.FIELDS})
        self.offset = nn.ParameterDict({f: nn.Parameter(torch.tensor(0.2)) for f in self.FIELDS})

    def step(self, state):
        grid = torch.stack([state[f] for f in self.FIELDS], dim=1)
        new = {f: self.convs[f](grid).squeeze(1) + self.offset[f] for f in self.FIELDS}
        return self.mask_land(new)

    def mask_land(self, state):
        with torch.set_grad_enabled(False):
            for field in state.values():
                field[:, ~self.sea] = 0.
        return state
# %%
torch.manual_seed(20)
sea = torch.rand(6, 6) > 0.3
emulator = Emulator(sea)
today = {f: torch.randn(2, 6, 6) * sea for f in Emulator.FIELDS}
truth = {f: torch.randn(2, 6, 6) for f in Emulator.FIELDS}
# %%
forecast = emulator.step(emulator.step(today))
loss = sum((forecast[f] - truth[f]).square().mean() for f in truth)
loss.backward()
print('loss', round(loss.item(), 4), [p.grad.item() for p in emulator.offset.values()])
# %% [fixed 1]
import torch
from torch import nn

class Emulator(nn.Module):
    FIELDS = ('temp', 'salt')

    def __init__(self, sea):
        super().__init__()
        self.register_buffer('sea', sea)
        self.convs = nn.ModuleDict({f: nn.Conv2d(2, 1, 3, padding=1, bias=False) for f in self.FIELDS})
        self.offset = nn.ParameterDict({f: nn.Parameter(torch.tensor(0.2)) for f in self.FIELDS})

    def step(self, state):
        grid = torch.stack([state[f] for f in self.FIELDS], dim=1)
        new = {f: self.convs[f](grid).squeeze(1) + self.offset[f] for f in self.FIELDS}
        return self.mask_land(new)

    def mask_land(self, state):
        for name in list(state):
            state[name] = torch.where(self.sea, state[name], torch.zeros(()))
        return state
