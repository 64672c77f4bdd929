# %% [case]
# id: weights-init-applied-without-no-grad
# source: GAN notebook, own weights_init passed to module.apply
# family: leaf
# fails: 2
# culprit: 1:7
# saved: -
# needed: 1:7
# effect: same
# observe: [p.detach().clone() for p in netG.parameters()]
# note: weights_init writes into parameters outside no_grad, called through apply. Fix: nn.init / no_grad.
# %%
import torch
import torch.nn as nn

def weights_init(m):
    name = m.__class__.__name__
    if name.find('Linear') != -1:
        m.weight.normal_(0.0, 0.02)
    elif name.find('BatchNorm') != -1:
        m.weight.normal_(1.0, 0.02)
        m.bias.fill_(0)
# %%
torch.manual_seed(999)
netG = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(True), nn.Linear(8, 3), nn.Tanh())
netG.apply(weights_init)
# %% [fixed 1]
import torch
import torch.nn as nn

def weights_init(m):
    name = m.__class__.__name__
    if name.find('Linear') != -1:
        with torch.no_grad():
            m.weight.normal_(0.0, 0.02)
    elif name.find('BatchNorm') != -1:
        with torch.no_grad():
            m.weight.normal_(1.0, 0.02)
            m.bias.fill_(0)
