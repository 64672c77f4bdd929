# %% [case]
# id: weight-decay-term-computed-before-loop
# source: logistic regression homework, the penalty computed once before the epochs
# family: second_backward
# fails: 3
# culprit: 3:5
# saved: 2:5
# needed: 3:6
# effect: other
# observe: [w.detach().clone(), b.detach().clone()]
# note: the l2 penalty has one graph that the first backward frees. Fix: compute it in the loop.
# %%
import torch
torch.manual_seed(0)
X = torch.randn(30, 4)
y = (X[:, 0] - X[:, 1] > 0).float()
w = torch.zeros(4, requires_grad=True)
b = torch.zeros(1, requires_grad=True)
# %%
lam = 0.01
def model(X):
    return torch.sigmoid(X @ w + b)

l2 = lam * (w ** 2).sum()
# %%
lr, history = 0.5, []
for epoch in range(5):
    p = model(X).clamp(1e-6, 1 - 1e-6)
    nll = -(y * p.log() + (1 - y) * (1 - p).log()).mean()
    loss = nll + l2
    loss.backward()
    with torch.no_grad():
        w -= lr * w.grad
        b -= lr * b.grad
    w.grad.zero_(); b.grad.zero_()
    history.append(loss.item())
history
# %% [fixed 3]
lr, history = 0.5, []
for epoch in range(5):
    p = model(X).clamp(1e-6, 1 - 1e-6)
    nll = -(y * p.log() + (1 - y) * (1 - p).log()).mean()
    loss = nll + lam * (w ** 2).sum()
    loss.backward()
    with torch.no_grad():
        w -= lr * w.grad
        b -= lr * b.grad
    w.grad.zero_(); b.grad.zero_()
    history.append(loss.item())
history
