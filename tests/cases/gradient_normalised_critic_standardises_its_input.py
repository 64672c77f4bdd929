# %% [case]
# id: gradient-normalised-critic-standardises-its-input
# source: https://github.com/basiclab/GNGAN-PyTorch/issues/5
# family: leaf
# fails: 4
# culprit: 2:12
# saved: -
# needed: 2:12
# effect: same
# observe: [loss_D.detach()] + [p.grad.clone() for p in net_D.parameters()]
# note: normalize_gradient() makes the images a leaf that requires grad, and the asker's own discriminator standardises its input in place (fine before gradient normalisation was added). Fix: out of place in the discriminator. (Discriminator reconstructed, the thread shows no code.)
# %%
import torch
from torch import nn
torch.manual_seed(5)

def normalize_gradient(net_D, x, **kwargs):
    """
                     f
    f_hat = --------------------
            || grad_f || + | f |
    """
    x.requires_grad_(True)
    f = net_D(x, **kwargs)
    grad = torch.autograd.grad(
        f, [x], torch.ones_like(f), create_graph=True, retain_graph=True)[0]
    grad_norm = torch.norm(torch.flatten(grad, start_dim=1), p=2, dim=1)
    grad_norm = grad_norm.view(-1, *[1 for _ in range(len(f.shape) - 1)])
    return f / (grad_norm + torch.abs(f))
# %%
class Discriminator(nn.Module):
    def __init__(self, mean=(0.49, 0.48, 0.45), std=(0.25, 0.24, 0.26), ch=4):
        super().__init__()
        self.register_buffer('mean', torch.tensor(mean).view(1, 3, 1, 1))
        self.register_buffer('std', torch.tensor(std).view(1, 3, 1, 1))
        self.model = nn.Sequential(
            nn.Conv2d(3, ch, 3, 1, 1), nn.LeakyReLU(0.1, inplace=True),
            nn.Conv2d(ch, ch * 2, 4, 2, 1), nn.LeakyReLU(0.1, inplace=True))
        self.linear = nn.Linear(ch * 2 * 4 * 4, 1)

    def forward(self, x):
        x.sub_(self.mean).div_(self.std)
        x = self.model(x)
        return self.linear(torch.flatten(x, start_dim=1))

class Generator(nn.Module):
    def __init__(self, z_dim=6):
        super().__init__()
        self.z_dim = z_dim
        self.net = nn.Sequential(nn.Linear(z_dim, 3 * 8 * 8), nn.Sigmoid())
    def forward(self, z):
        return self.net(z).view(-1, 3, 8, 8)
# %%
class HingeLoss(nn.Module):
    def forward(self, pred_real, pred_fake=None):
        if pred_fake is not None:
            return (torch.relu(1 - pred_real) + torch.relu(1 + pred_fake)).mean()
        return -pred_real.mean()

net_G, net_D, loss_fn = Generator(), Discriminator(), HingeLoss()
optim_D = torch.optim.Adam(net_D.parameters(), lr=4e-4, betas=(0.0, 0.9))
looper = iter(torch.rand(5, 6, 3, 8, 8))
# %%
n_dis = 2
for _ in range(n_dis):
    real = next(looper)
    with torch.no_grad():
        fake = net_G(torch.randn(len(real), net_G.z_dim))
    x = torch.cat([real, fake], dim=0)
    pred_real, pred_fake = torch.split(normalize_gradient(net_D, x), [len(real), len(fake)])
    loss_D = loss_fn(pred_real, pred_fake)
    optim_D.zero_grad()
    loss_D.backward()
    optim_D.step()
# %% [fixed 2]
class Discriminator(nn.Module):
    def __init__(self, mean=(0.49, 0.48, 0.45), std=(0.25, 0.24, 0.26), ch=4):
        super().__init__()
        self.register_buffer('mean', torch.tensor(mean).view(1, 3, 1, 1))
        self.register_buffer('std', torch.tensor(std).view(1, 3, 1, 1))
        self.model = nn.Sequential(
            nn.Conv2d(3, ch, 3, 1, 1), nn.LeakyReLU(0.1, inplace=True),
            nn.Conv2d(ch, ch * 2, 4, 2, 1), nn.LeakyReLU(0.1, inplace=True))
        self.linear = nn.Linear(ch * 2 * 4 * 4, 1)

    def forward(self, x):
        x = (x - self.mean) / self.std
        x = self.model(x)
        return self.linear(torch.flatten(x, start_dim=1))

class Generator(nn.Module):
    def __init__(self, z_dim=6):
        super().__init__()
        self.z_dim = z_dim
        self.net = nn.Sequential(nn.Linear(z_dim, 3 * 8 * 8), nn.Sigmoid())
    def forward(self, z):
        return self.net(z).view(-1, 3, 8, 8)
