# %% [case]
# id: awp-restores-weights-before-backward
# source: adversarial weight perturbation, weights restored too early
# family: silent
# fails: -
# culprit: 1:17
# saved: 3:4
# needed: 3:6
# effect: same
# observe: [p.grad.clone() for p in net.parameters()]
# note: restore() puts the old weights back through .data before backward, which then uses them instead of the perturbed ones. Fix: backward first.
# %%
import torch, torch.nn as nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 2))
ce = nn.CrossEntropyLoss()

class AWP:
    def __init__(self, model, gamma=0.5):
        self.model, self.gamma, self.backup = model, gamma, {}
    def perturb(self):
        for n, p in self.model.named_parameters():
            if p.grad is not None and 'weight' in n:
                self.backup[n] = p.data.clone()
                p.data.add_(self.gamma * p.grad / (p.grad.norm() + 1e-8) * p.data.norm())
    def restore(self):
        for n, p in self.model.named_parameters():
            if n in self.backup:
                p.data.copy_(self.backup[n])
        self.backup = {}
# %%
x, y = torch.randn(12, 5), torch.randint(0, 2, (12,))
awp = AWP(net)
opt = torch.optim.Adam(net.parameters())
# %%
ce(net(x), y).backward()
awp.perturb()
opt.zero_grad()
adv_loss = ce(net(x), y)
awp.restore()
adv_loss.backward()
opt.step()
# %% [fixed 3]
ce(net(x), y).backward()
awp.perturb()
opt.zero_grad()
adv_loss = ce(net(x), y)
adv_loss.backward()
awp.restore()
opt.step()
