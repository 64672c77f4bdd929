# %% [case]
# id: perceptual-attack-live-mask-indexes-itself
# source: https://github.com/cassidylaidlaw/perceptual-advex/issues/8 (same line in khorrams/IGOS_pp#2)
# family: overlap
# fails: 4
# culprit: 2:19
# saved: -
# needed: 2:19
# effect: same
# observe: [adv_inputs.detach(), live]
# note: live[live] = ...: the mask is index and target of the same write. Older versions let it pass. Human fix (IGOS_pp thread): live[live.clone()] = ...
# %%
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(8)

class LPIPSDistance(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.features = features
    def forward(self, a, b):
        fa, fb = (F.normalize(self.features(t), dim=1).flatten(1) for t in (a, b))
        return (fa - fb).norm(dim=1)

class MarginLoss(nn.Module):
    """difference between the logit of the label and the best other one"""
    def __init__(self, kappa=1.0):
        super().__init__()
        self.kappa = kappa
    def forward(self, logits, labels):
        onehot = F.one_hot(labels, logits.size(1)).bool()
        correct = logits[onehot]
        other = logits.masked_fill(onehot, -1e9).max(1).values
        return (other - correct).clamp(max=self.kappa)
# %%
class LagrangePerceptualAttack(nn.Module):
    def __init__(self, model, lpips_model, bound=0.5, step=0.1, num_iterations=6, lam=1.0):
        super().__init__()
        self.model, self.lpips_distance, self.loss = model, lpips_model, MarginLoss()
        self.bound, self.step, self.num_iterations, self.lam = bound, step, num_iterations, lam

    def forward(self, inputs, labels):
        perturbations = (torch.randn_like(inputs) * 0.01).requires_grad_(True)
        live = torch.ones(len(inputs), dtype=torch.bool)
        for it in range(self.num_iterations):
            adv_inputs = (inputs + perturbations)[live]
            logits = self.model(adv_inputs)
            lpips_dists = self.lpips_distance(adv_inputs, inputs[live])
            loss = -self.loss(logits, labels[live]) + self.lam * F.relu(lpips_dists - self.bound)
            grad, = torch.autograd.grad(loss.sum(), perturbations)

            with torch.no_grad():
                adv_labels = logits.argmax(1)
                live[live] = (adv_labels == labels[live]) | (lpips_dists > self.bound)
                if live.sum() == 0:
                    break
                grad_norm = grad.flatten(1).norm(dim=1).clamp(min=1e-8).view(-1, 1, 1, 1)
                perturbations[live] -= (self.step * grad / grad_norm)[live]
        return (inputs + perturbations).detach(), live
# %%
backbone = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Tanh())
model = nn.Sequential(backbone, nn.Flatten(), nn.Linear(4 * 25, 3)).eval().requires_grad_(False)
inputs = torch.rand(5, 3, 5, 5)
labels = model(inputs).argmax(1)
# %%
attack = LagrangePerceptualAttack(model, LPIPSDistance(backbone))
adv_inputs, live = attack(inputs, labels)
print("fooled", (model(adv_inputs).argmax(1) != labels).sum().item(), "of", len(labels), "still live", live.sum().item())
# %% [fixed 2]
class LagrangePerceptualAttack(nn.Module):
    def __init__(self, model, lpips_model, bound=0.5, step=0.1, num_iterations=6, lam=1.0):
        super().__init__()
        self.model, self.lpips_distance, self.loss = model, lpips_model, MarginLoss()
        self.bound, self.step, self.num_iterations, self.lam = bound, step, num_iterations, lam

    def forward(self, inputs, labels):
        perturbations = (torch.randn_like(inputs) * 0.01).requires_grad_(True)
        live = torch.ones(len(inputs), dtype=torch.bool)
        for it in range(self.num_iterations):
            adv_inputs = (inputs + perturbations)[live]
            logits = self.model(adv_inputs)
            lpips_dists = self.lpips_distance(adv_inputs, inputs[live])
            loss = -self.loss(logits, labels[live]) + self.lam * F.relu(lpips_dists - self.bound)
            grad, = torch.autograd.grad(loss.sum(), perturbations)

            with torch.no_grad():
                adv_labels = logits.argmax(1)
                live[live.clone()] = (adv_labels == labels[live]) | (lpips_dists > self.bound)
                if live.sum() == 0:
                    break
                grad_norm = grad.flatten(1).norm(dim=1).clamp(min=1e-8).view(-1, 1, 1, 1)
                perturbations[live] -= (self.step * grad / grad_norm)[live]
        return (inputs + perturbations).detach(), live
