# %% [case]
# id: r1-penalty-from-predictions-before-d-step
# source: https://github.com/Lightning-AI/pytorch-lightning/issues/2820
# family: modified
# fails: 4
# culprit: 3:19
# saved: 1:22
# needed: 3:18
# effect: other
# observe: [gan.logged['d_loss'], gan.logged['d_reg_loss'], gan.logged['g_loss']] + [p.detach().clone() for p in gan.D.parameters()]
# note: d_loss and d_reg_loss (R1) are both made from one pass of the discriminator, but each has its own backward and step; after the step for d_loss the R1 graph holds old weights. Answer in the thread: compute d_reg_loss with the updated discriminator, after the step.
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(28)

class EqualConv2d(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(o, i, 3, 3))
        self.scale = (i * 9) ** -0.5
    def forward(self, x):
        return F.conv2d(x, self.weight * self.scale, stride=2, padding=1)

class Discriminator(nn.Module):
    def __init__(self, ch=4, size=8):
        super().__init__()
        self.conv1, self.conv2 = EqualConv2d(3, ch), EqualConv2d(ch, ch)
        self.final = nn.Linear(ch * (size // 4) ** 2, 1)
    def forward(self, img):
        h = F.softplus(self.conv1(img))
        h = F.softplus(self.conv2(h))
        out = self.final(h.flatten(1))
        return out

def make_generator(z_dim=5, size=8):
    return nn.Sequential(nn.Linear(z_dim, 16), nn.LeakyReLU(0.2), nn.Linear(16, 3 * size * size), nn.Unflatten(1, (3, size, size)))
# %%
def d_logistic_loss(real_pred, fake_pred):
    return F.softplus(-real_pred).mean() + F.softplus(fake_pred).mean()

def d_r1_loss(real_pred, real_img):
    grad_real, = torch.autograd.grad(outputs=real_pred.sum(), inputs=real_img, create_graph=True)
    return grad_real.pow(2).reshape(grad_real.shape[0], -1).sum(1).mean()
# %%
class StyleGANModule(nn.Module):
    """manual optimization, the Lightning trainer is left out"""
    def __init__(self, r1=10., d_reg_every=2, z_dim=5):
        super().__init__()
        self.r1, self.d_reg_every, self.z_dim = r1, d_reg_every, z_dim
        self.G, self.D = make_generator(z_dim), Discriminator()
        self.logged = {}
        self.opts = self.configure_optimizers()

    def configure_optimizers(self):
        ratio = self.d_reg_every / (self.d_reg_every + 1)
        return {'g': torch.optim.Adam(self.G.parameters(), lr=2e-3, betas=(0., 0.99)),
                'd': torch.optim.Adam(self.D.parameters(), lr=2e-3 * ratio, betas=(0., 0.99 ** ratio))}

    def optimize(self, which, name, loss, retain_graph=False):
        opt = self.opts[which]
        opt.zero_grad()
        loss.backward(retain_graph=retain_graph)
        opt.step()
        self.logged[name] = loss.item()

    def training_step(self, real_img, batch_idx):
        z = torch.randn(len(real_img), self.z_dim)
        real_img.requires_grad = True
        real_pred, fake_pred = self.D(real_img), self.D(self.G(z).detach())
        d_loss = d_logistic_loss(real_pred, fake_pred)

        if batch_idx % self.d_reg_every == 0:
            d_reg_loss = self.r1 / 2 * d_r1_loss(real_pred, real_img) * self.d_reg_every + 0 * real_pred[0]
            self.optimize('d', 'd_loss', d_loss, retain_graph=True)
            self.optimize('d', 'd_reg_loss', d_reg_loss)
        else:
            self.optimize('d', 'd_loss', d_loss)

        g_loss = F.softplus(-self.D(self.G(z))).mean()
        self.optimize('g', 'g_loss', g_loss)
# %%
gan = StyleGANModule()
for batch_idx in range(3):
    gan.training_step(torch.rand(4, 3, 8, 8) * 2 - 1, batch_idx)
    print(batch_idx, gan.logged)
# %% [fixed 3]
class StyleGANModule(nn.Module):
    """manual optimization, the Lightning trainer is left out"""
    def __init__(self, r1=10., d_reg_every=2, z_dim=5):
        super().__init__()
        self.r1, self.d_reg_every, self.z_dim = r1, d_reg_every, z_dim
        self.G, self.D = make_generator(z_dim), Discriminator()
        self.logged = {}
        self.opts = self.configure_optimizers()

    def configure_optimizers(self):
        ratio = self.d_reg_every / (self.d_reg_every + 1)
        return {'g': torch.optim.Adam(self.G.parameters(), lr=2e-3, betas=(0., 0.99)),
                'd': torch.optim.Adam(self.D.parameters(), lr=2e-3 * ratio, betas=(0., 0.99 ** ratio))}

    def optimize(self, which, name, loss, retain_graph=False):
        opt = self.opts[which]
        opt.zero_grad()
        loss.backward(retain_graph=retain_graph)
        opt.step()
        self.logged[name] = loss.item()

    def training_step(self, real_img, batch_idx):
        z = torch.randn(len(real_img), self.z_dim)
        real_img.requires_grad = True
        real_pred, fake_pred = self.D(real_img), self.D(self.G(z).detach())
        d_loss = d_logistic_loss(real_pred, fake_pred)

        if batch_idx % self.d_reg_every == 0:
            self.optimize('d', 'd_loss', d_loss)
            real_pred = self.D(real_img)
            d_reg_loss = self.r1 / 2 * d_r1_loss(real_pred, real_img) * self.d_reg_every + 0 * real_pred[0]
            self.optimize('d', 'd_reg_loss', d_reg_loss)
        else:
            self.optimize('d', 'd_loss', d_loss)

        g_loss = F.softplus(-self.D(self.G(z))).mean()
        self.optimize('g', 'g_loss', g_loss)
