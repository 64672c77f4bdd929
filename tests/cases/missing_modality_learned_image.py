# %% [case]
# id: missing-modality-learned-image
# source: https://github.com/ccarliu/m3ae/issues/15
# family: no_grad_view
# fails: 4
# culprit: 3:14
# saved: -
# needed: 3:14
# effect: same
# observe: [loss.detach()] + [p.grad.clone() for p in model.parameters()]
# note: the crop is a view of the volumes made under no_grad; the model pastes its learned image into it with grad mode on. Fix: clone x before the writes.
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(15)
volumes = torch.rand(2, 4, 8, 8)   # two patients, four modalities
# %%
@torch.no_grad()
def random_crop(volumes, size=6):
    h, w = torch.randint(0, volumes.shape[-1] - size + 1, (2,)).tolist()
    patch_locations = [(h, h + size), (w, w + size)]
    return volumes[:, :, h:h + size, w:w + size], patch_locations

def sample_masks(x, ratio=0.4):
    return (torch.rand(x.shape) > ratio).float()
# %%
class Unet(nn.Module):
    def __init__(self, modalities=4, full=8, ch=5):
        super().__init__()
        # image that stands for what is missing, trained with the network
        self.limage = nn.Parameter(0.1 * torch.randn(modalities, full, full))
        self.encoder = nn.Sequential(nn.Conv2d(modalities, ch, 3, padding=1), nn.InstanceNorm2d(ch), nn.LeakyReLU())
        self.decoder = nn.Conv2d(ch, modalities, 3, padding=1)

    def forward(self, x, location, masks):
        (h0, h1), (w0, w1) = location
        limage = self.limage[:, h0:h1, w0:w1]
        for l in range(x.shape[0]):
            mask = masks[l]
            x[l] = x[l] * mask + limage * (1 - mask)
        return self.decoder(self.encoder(x))
# %%
model = Unet()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
for epoch in range(2):
    inputs, patch_locations = random_crop(volumes)
    target = inputs.clone()
    optimizer.zero_grad()
    loss = F.mse_loss(model(inputs, patch_locations, sample_masks(inputs)), target) + 1e-3 * model.limage.pow(2).sum()
    loss.backward()
    optimizer.step()
# %% [fixed 3]
class Unet(nn.Module):
    def __init__(self, modalities=4, full=8, ch=5):
        super().__init__()
        # image that stands for what is missing, trained with the network
        self.limage = nn.Parameter(0.1 * torch.randn(modalities, full, full))
        self.encoder = nn.Sequential(nn.Conv2d(modalities, ch, 3, padding=1), nn.InstanceNorm2d(ch), nn.LeakyReLU())
        self.decoder = nn.Conv2d(ch, modalities, 3, padding=1)

    def forward(self, x, location, masks):
        (h0, h1), (w0, w1) = location
        x = x.clone()
        limage = self.limage[:, h0:h1, w0:w1]
        for l in range(x.shape[0]):
            mask = masks[l]
            x[l] = x[l] * mask + limage * (1 - mask)
        return self.decoder(self.encoder(x))
