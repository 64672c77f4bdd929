# %% [case]
# id: lbfgs-graph-outside
# source: a textbook mistake in other words
# family: second_backward
# fails: 2
# culprit: -
# saved: -
# needed: 2:5
# effect: same
# observe: [theta.detach().clone()]
# note: the residual's graph is made once, outside of the closure that LBFGS calls
# %%
import torch
torch.manual_seed(0)
theta = torch.randn(3, requires_grad=True)
coords = torch.linspace(0, 1, 5)
opt = torch.optim.LBFGS([theta], max_iter=4)
# %%
u = theta[0] + theta[1] * coords + theta[2] * coords ** 2
def closure():
    opt.zero_grad()
    residual = (u - torch.sin(coords)).pow(2).mean()
    residual.backward()
    return residual
opt.step(closure)
# %% [fixed 2]
def closure():
    opt.zero_grad()
    u = theta[0] + theta[1] * coords + theta[2] * coords ** 2
    residual = (u - torch.sin(coords)).pow(2).mean()
    residual.backward()
    return residual
opt.step(closure)
