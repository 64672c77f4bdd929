# %% [case]
# id: weight-decay-term-handed-to-fit
# source: homework, the weight penalty computed once before the training loop, reworded
# family: second_backward
# fails: 4
# culprit: 3:5
# saved: 2:2
# needed: 3:6
# effect: other
# observe: [theta['W'].detach().clone(), theta['b'].detach().clone()]
# note: ridge regression with a dict of parameters, fit() takes the ready-made penalty as an argument and is called in a later cell. Fix: compute it inside.
# %%
import torch
torch.manual_seed(13)
A = torch.randn(25, 3)
t = A @ torch.tensor([1., 0., -2.]) + 0.5
theta = {'W': torch.randn(3), 'b': torch.zeros(())}
for v in theta.values(): v.requires_grad_()
# %%
alpha = 0.1
ridge = alpha * theta['W'].square().sum()
# %%
def fit(ridge, lr=0.1, max_iter=6):
    it = 0
    while it < max_iter:
        residual = A @ theta['W'] + theta['b'] - t
        objective = residual.square().mean() + ridge
        objective.backward()
        with torch.no_grad():
            for v in theta.values():
                v -= lr * v.grad
                v.grad = None
        it += 1
    return objective.item()
# %%
fit(ridge)
# %% [fixed 3]
def fit(lr=0.1, max_iter=6):
    it = 0
    while it < max_iter:
        residual = A @ theta['W'] + theta['b'] - t
        objective = residual.square().mean() + alpha * theta['W'].square().sum()
        objective.backward()
        with torch.no_grad():
            for v in theta.values():
                v -= lr * v.grad
                v.grad = None
        it += 1
    return objective.item()
# %% [fixed 4]
fit()
