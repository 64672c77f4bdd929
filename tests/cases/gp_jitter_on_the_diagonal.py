# %% [case]
# id: gp-jitter-on-the-diagonal
# source: Gaussian process regression by hand, jitter added to the kernel's diagonal
# family: modified
# fails: 4
# culprit: 2:7
# saved: 2:3
# needed: 3:5
# effect: same
# observe: [log_ls.grad.clone(), log_noise.grad.clone()]
# note: exp keeps its result K, jitter is then added to its diagonal in place. Fix: K = K + jitter * eye.
# %%
import torch
torch.manual_seed(0)
X = torch.linspace(0, 1, 8)[:, None]
y = torch.sin(6 * X[:, 0]) + 0.1 * torch.randn(8)
log_ls = torch.tensor(-1., requires_grad=True)
log_noise = torch.tensor(-2., requires_grad=True)
# %%
def rbf(a, b, ls):
    d2 = (a[:, None] - b[None]).pow(2).sum(-1)
    return torch.exp(-0.5 * d2 / ls ** 2)

def nlml(X, y):
    K = rbf(X, X, log_ls.exp())
    K.diagonal().add_(log_noise.exp() + 1e-5)
    L = torch.linalg.cholesky(K)
    alpha = torch.cholesky_solve(y[:, None], L)
    return 0.5 * (y[:, None] * alpha).sum() + L.diagonal().log().sum()
# %%
opt = torch.optim.LBFGS([log_ls, log_noise], max_iter=2)
def closure():
    opt.zero_grad()
    l = nlml(X, y)
    l.backward()
    return l
# %%
opt.step(closure)
# %% [fixed 2]
def rbf(a, b, ls):
    d2 = (a[:, None] - b[None]).pow(2).sum(-1)
    return torch.exp(-0.5 * d2 / ls ** 2)

def nlml(X, y):
    K = rbf(X, X, log_ls.exp())
    K = K + (log_noise.exp() + 1e-5) * torch.eye(len(X))
    L = torch.linalg.cholesky(K)
    alpha = torch.cholesky_solve(y[:, None], L)
    return 0.5 * (y[:, None] * alpha).sum() + L.diagonal().log().sum()
