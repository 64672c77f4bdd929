# %% [case]
# id: dann-two-backwards-no-reversal
# source: domain adversarial training, class and domain loss each with its own backward
# family: second_backward
# fails: 3
# culprit: 3:7
# saved: 3:3
# needed: 3:8
# effect: same
# observe: [p.grad.clone() for p in feature.parameters()]
# note: both losses go through the feature extractor. Fix: one backward of the sum.
# %%
import torch
import torch.nn as nn
from torch.autograd import Function
torch.manual_seed(1)

class ReverseLayerF(Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)
    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.neg() * ctx.alpha, None
# %%
feature = nn.Sequential(nn.Linear(6, 10), nn.BatchNorm1d(10), nn.ReLU(True))
class_clf, domain_clf = nn.Linear(10, 3), nn.Linear(10, 2)
opt = torch.optim.Adam([*feature.parameters(), *class_clf.parameters(), *domain_clf.parameters()], 1e-3)
xs, ys, xt = torch.randn(8, 6), torch.randint(0, 3, (8,)), torch.randn(8, 6) + 1
# %%
x = torch.cat([xs, xt])
d = torch.cat([torch.zeros(8), torch.ones(8)]).long()
f = feature(x)
err_label = nn.functional.cross_entropy(class_clf(f[:8]), ys)
err_domain = nn.functional.cross_entropy(domain_clf(ReverseLayerF.apply(f, 0.5)), d)
opt.zero_grad()
err_label.backward()
err_domain.backward()
opt.step()
# %% [fixed 3]
x = torch.cat([xs, xt])
d = torch.cat([torch.zeros(8), torch.ones(8)]).long()
f = feature(x)
err_label = nn.functional.cross_entropy(class_clf(f[:8]), ys)
err_domain = nn.functional.cross_entropy(domain_clf(ReverseLayerF.apply(f, 0.5)), d)
opt.zero_grad()
(err_label + err_domain).backward()
opt.step()
