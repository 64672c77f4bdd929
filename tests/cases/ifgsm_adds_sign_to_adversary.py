# %% [case]
# id: ifgsm-adds-sign-to-adversary
# source: iterative FGSM attack from an adversarial examples notebook
# family: leaf
# fails: 3
# culprit: 2:8
# saved: -
# needed: 2:8
# effect: truncates
# observe: [x_adv.detach().clone()]
# note: x_adv is a leaf that requires grad, `x_adv += ...` is refused. Fix: update under no_grad and clear the gradient.
# %%
import torch
import torch.nn as nn
torch.manual_seed(7)
net = nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 3)).eval()
criterion = nn.CrossEntropyLoss()
# %%
def i_fgsm(net, x, y, eps=0.1, alpha=0.02, steps=3):
    x_adv = x.clone().detach().requires_grad_(True)
    for _ in range(steps):
        cost = criterion(net(x_adv), y)
        net.zero_grad()
        cost.backward()
        # one step uphill
        x_adv += alpha * x_adv.grad.sign()
        x_adv.grad.zero_()
    return torch.max(torch.min(x_adv, x + eps), x - eps)
# %%
images, labels = torch.rand(4, 1, 4, 4), torch.tensor([0, 1, 2, 0])
x_adv = i_fgsm(net, images, labels)
print('linf', (x_adv - images).abs().max().item())
# %% [fixed 2]
def i_fgsm(net, x, y, eps=0.1, alpha=0.02, steps=3):
    x_adv = x.clone().detach().requires_grad_(True)
    for _ in range(steps):
        cost = criterion(net(x_adv), y)
        net.zero_grad()
        cost.backward()
        # one step uphill
        with torch.no_grad():
            x_adv += alpha * x_adv.grad.sign()
        x_adv.grad.zero_()
    return torch.max(torch.min(x_adv, x + eps), x - eps)
