# %% [case]
# id: buffers-broadcast-before-each-forward
# source: https://github.com/pytorch/pytorch/issues/175024 (also #22095, #110363)
# family: modified
# fails: 4
# culprit: 1:21
# saved: 2:10
# needed: 4:8
# effect: same
# observe: [d_loss.detach()] + [p.grad.clone() for p in netD.parameters()]
# note: a pre-forward hook copies the buffers of rank 0 into the BatchNorm buffers (copied from DDP's _sync_buffers, here without processes). The discriminator runs on fake, then on real; the second sync writes running_mean / running_var, which batch_norm of the first pass has saved (backward in training mode does not even use them). Human fix given in the threads: broadcast_buffers=False.
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(175)

class BufferBroadcast:
    """like DistributedDataParallel(broadcast_buffers=True), rank 0 kept in this process to debug on a laptop"""
    def __init__(self, module, broadcast_buffers=True):
        self.module = module
        self.rank0 = {k: b.clone() for k, b in module.named_buffers()}
        if broadcast_buffers:
            module.register_forward_pre_hook(self._pre_forward)

    def _pre_forward(self, module, args):
        if module.training:
            self._sync_buffers()

    def _sync_buffers(self):
        with torch.no_grad():
            for name, buf in self.module.named_buffers():
                buf.copy_(self.rank0[name])

    def __call__(self, *a, **kw):
        return self.module(*a, **kw)
# %%
class Discriminator(nn.Module):
    def __init__(self, ndf=4):
        super().__init__()
        self.conv1 = nn.Conv2d(1, ndf, 4, 2, 1)
        self.conv2 = nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(ndf * 2)
        self.head = nn.Linear(ndf * 2, 1)
    def forward(self, img):
        h = F.leaky_relu(self.conv1(img), 0.2)
        h = F.leaky_relu(self.bn2(self.conv2(h)), 0.2)
        return self.head(h.mean(dim=(2, 3))).flatten()

netG = nn.Sequential(nn.Linear(5, 64), nn.Tanh(), nn.Unflatten(1, (1, 8, 8)))
netD = Discriminator()
# %%
ddp_D = BufferBroadcast(netD)
optD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))

def d_hinge(real_logits, fake_logits):
    return F.relu(1 - real_logits).mean() + F.relu(1 + fake_logits).mean()
# %%
for real in torch.rand(2, 6, 1, 8, 8).mul(2).sub(1).unbind():
    with torch.no_grad():
        fake = netG(torch.randn(len(real), 5))
    fake_logits = ddp_D(fake)
    real_logits = ddp_D(real)
    d_loss = d_hinge(real_logits, fake_logits)
    optD.zero_grad(set_to_none=True)
    d_loss.backward()
    optD.step()
    print(f"D {d_loss.item():.4f}")
# %% [fixed 3]
ddp_D = BufferBroadcast(netD, broadcast_buffers=False)
optD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))

def d_hinge(real_logits, fake_logits):
    return F.relu(1 - real_logits).mean() + F.relu(1 + fake_logits).mean()
