# %% [case]
# id: gradient-hook-updates-weight-under-create-graph
# source: pytorch docs notes/autograd (backward hooks: grad mode is that of create_graph) and test/test_autograd.py test_post_accumulate_grad_hook_on_non_leaf ; pytorch/pytorch#107063
# family: leaf
# fails: 4
# culprit: 2:11
# saved: -
# needed: 2:11 | 3:9
# effect: same
# observe: [p.detach().clone() for p in policy.parameters()]
# note: Without create_graph the engine runs hooks with grad mode off, so the in-place update in the hook was fine until the logger asked for create_graph=True; then grad mode is on inside the hook and param is a leaf. Human fix: torch.no_grad() around the update.
# %%
import torch
from torch import nn
torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
obs = torch.randn(6, 3)
act = torch.randint(0, 2, (6,))
adv = torch.randn(6)
# %%
class FusedMomentum:
    """SGD with momentum applied while backward runs, one parameter at a time"""
    def __init__(self, params, lr=0.05, beta=0.9):
        self.lr, self.beta, self.buf = lr, beta, {}
        self.handles = [p.register_post_accumulate_grad_hook(self.update) for p in params]

    def update(self, param):
        g = param.grad.detach()
        m = self.buf.setdefault(param, torch.zeros_like(g))
        m.mul_(self.beta).add_(g)
        param.add_(m, alpha=-self.lr)
        param.grad = None

    def remove(self):
        for h in self.handles:
            h.remove()

fused = FusedMomentum(policy.parameters())
# %%
def pg_loss():
    logp = policy(obs).log_softmax(-1)
    chosen = logp.gather(1, act[:, None]).squeeze(1)
    return -(chosen * adv).mean() + 0.01 * (logp.exp() * logp).sum(-1).mean()

def iteration(it, curvature_every=2):
    loss = pg_loss()
    # second order terms are only looked at now and then
    loss.backward(create_graph=it % curvature_every == 1)
    return loss.item()
# %%
log = []
for it in range(4):
    log.append(iteration(it))
print(log)
# %% [fixed 2]
class FusedMomentum:
    """SGD with momentum applied while backward runs, one parameter at a time"""
    def __init__(self, params, lr=0.05, beta=0.9):
        self.lr, self.beta, self.buf = lr, beta, {}
        self.handles = [p.register_post_accumulate_grad_hook(self.update) for p in params]

    @torch.no_grad()
    def update(self, param):
        g = param.grad.detach()
        m = self.buf.setdefault(param, torch.zeros_like(g))
        m.mul_(self.beta).add_(g)
        param.add_(m, alpha=-self.lr)
        param.grad = None

    def remove(self):
        for h in self.handles:
            h.remove()

fused = FusedMomentum(policy.parameters())
