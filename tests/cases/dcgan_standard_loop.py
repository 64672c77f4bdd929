# %% [case]
# id: dcgan-standard-loop
# source: a textbook mistake in other words
# family: second_backward
# fails: 2
# culprit: -
# saved: -
# needed: 2:16
# effect: same
# observe: [p.detach().clone() for p in [*netG.parameters(), *netD.parameters()]]
# note: the standard loop, without the detach
# %%
import torch
from torch import nn
torch.manual_seed(0)
netG, netD = nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 1), nn.Sigmoid())
optG = torch.optim.Adam(netG.parameters())
optD = torch.optim.Adam(netD.parameters())
criterion = nn.BCELoss()
# %%
for data in torch.randn(2, 4, 3):
    netD.zero_grad()
    label = torch.full((4,), 1.)
    output = netD(data).view(-1)
    errD_real = criterion(output, label)
    errD_real.backward()
    fake = netG(torch.randn(4, 2))
    label.fill_(0.)
    output = netD(fake).view(-1)
    errD_fake = criterion(output, label)
    errD_fake.backward()
    optD.step()
    netG.zero_grad()
    label.fill_(1.)
    output = netD(fake).view(-1)
    criterion(output, label).backward()
    optG.step()
# %% [fixed 2]
for data in torch.randn(2, 4, 3):
    netD.zero_grad()
    label = torch.full((4,), 1.)
    output = netD(data).view(-1)
    errD_real = criterion(output, label)
    errD_real.backward()
    fake = netG(torch.randn(4, 2))
    label.fill_(0.)
    output = netD(fake.detach()).view(-1)
    errD_fake = criterion(output, label)
    errD_fake.backward()
    optD.step()
    netG.zero_grad()
    label.fill_(1.)
    output = netD(fake).view(-1)
    criterion(output, label).backward()
    optG.step()
