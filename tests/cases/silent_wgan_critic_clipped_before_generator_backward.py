# %% [case]
# id: silent-wgan-critic-clipped-before-generator-backward
# source: martinarjovsky/WassersteinGAN#50 ("clip too early"; condensed with the generator loss built on the same pass)
# family: silent
# fails: -
# culprit: 3:4
# saved: 3:10
# needed: 4:7
# effect: same
# observe: [p.grad.clone() for p in netG.parameters()] + [p.detach().clone() for p in netD.parameters()]
# note: the critic's weights are clamped through .data after the generator loss has been computed and before its backward, which reads the clamped weights; no version is bumped, nothing is raised. Human fix: errG.backward() first, clip afterwards.
# %%
import torch
import torch.nn as nn
import torch.optim as optim
torch.manual_seed(50)
nz, ngf, ndf = 4, 6, 6

def weights_init(m):
    if isinstance(m, (nn.Conv1d, nn.ConvTranspose1d)):
        m.weight.data.normal_(0.0, 0.2)
# %%
netG = nn.Sequential(
    nn.ConvTranspose1d(nz, ngf, 4, bias=False),
    nn.ReLU(True),
    nn.ConvTranspose1d(ngf, 1, 4, 2, 1, bias=False),
    nn.Tanh(),
)
netD = nn.Sequential(
    nn.Conv1d(1, ndf, 4, 2, 1, bias=False),
    nn.LeakyReLU(0.2, inplace=True),
    nn.Conv1d(ndf, 1, 4, bias=False),
    nn.Flatten(),
)
netG.apply(weights_init); netD.apply(weights_init)
optimizerD = optim.RMSprop(netD.parameters(), lr=0.01)
optimizerG = optim.RMSprop(netG.parameters(), lr=0.01)
# %%
def clip_critic(net, lower=-0.1, upper=0.1):
    # clamp parameters to a cube
    for p in net.parameters():
        p.data.clamp_(lower, upper)

def critic_losses(real, noise):
    '''one generator pass for both players'''
    fake = netG(noise)
    errD = netD(fake.detach()).mean() - netD(real).mean()
    errG = -netD(fake).mean()
    return errD, errG
# %%
gen_iterations = 0
for real in torch.randn(2, 5, 1, 8):
    errD, errG = critic_losses(real, torch.randn(5, nz, 1))
    netD.zero_grad(); netG.zero_grad()
    errD.backward()
    clip_critic(netD)
    errG.backward(inputs=list(netG.parameters()))
    optimizerD.step()
    optimizerG.step()
    gen_iterations += 1
    print('[%d] Loss_D: %f Loss_G: %f' % (gen_iterations, errD.item(), errG.item()))
# %% [fixed 4]
gen_iterations = 0
for real in torch.randn(2, 5, 1, 8):
    errD, errG = critic_losses(real, torch.randn(5, nz, 1))
    netD.zero_grad(); netG.zero_grad()
    errD.backward()
    errG.backward(inputs=list(netG.parameters()))
    clip_critic(netD)
    optimizerD.step()
    optimizerG.step()
    gen_iterations += 1
    print('[%d] Loss_D: %f Loss_G: %f' % (gen_iterations, errD.item(), errG.item()))
