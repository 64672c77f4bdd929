# %% [case]
# id: mlp-from-scratch-scaled-weights-never-move
# source: d2l-ai/d2l-en#1713 (from-scratch MLP without nn.Parameter: after * 0.01 the tensor is no leaf)
# family: silent
# fails: -
# culprit: 2:3|2:5
# saved: -
# needed: -
# effect: same
# observe: [W1.detach().clone(), W2.detach().clone(), b1.detach().clone(), b2.detach().clone()] + history
# note: randn(..., requires_grad=True) * 0.01 is not a leaf, its .grad stays None and the weights are skipped by the update: only the biases learn. Fix: scale first, then ask for the gradient ((torch.randn(...) * 0.01).requires_grad_()), or wrap it in nn.Parameter.
# %%
import torch
from torch.nn import functional as F
torch.manual_seed(1713)

# leaf length / width / stalk -> one of three herbs
centers = torch.tensor([[2., 0., 0.], [0., 2., 0.], [0., 0., 2.]])
y = torch.arange(60) % 3
X = centers[y] + 0.4 * torch.randn(60, 3)
# %%
num_inputs, num_hiddens, num_outputs = 3, 8, 3

W1 = torch.randn(num_inputs, num_hiddens, requires_grad=True) * 0.01
b1 = torch.zeros(num_hiddens, requires_grad=True)
W2 = torch.randn(num_hiddens, num_outputs, requires_grad=True) * 0.01
b2 = torch.zeros(num_outputs, requires_grad=True)
params = [W1, b1, W2, b2]
# %%
def net(X):
    H = torch.relu(X @ W1 + b1)
    return H @ W2 + b2

def sgd(params, lr):
    with torch.no_grad():
        for p in params:
            if p.grad is None:      # not used in this batch
                continue
            p -= lr * p.grad
            p.grad.zero_()

def batches(size=20):
    for idx in torch.randperm(len(X)).split(size):
        yield X[idx], y[idx]
# %%
history = []
for epoch in range(4):
    total = 0.0
    for xb, yb in batches():
        loss = F.cross_entropy(net(xb), yb)
        loss.backward(retain_graph=True)
        sgd(params, lr=0.5)
        total += loss.item()
    history.append(total / 3)
print(history)
# %% [fixed 2]
num_inputs, num_hiddens, num_outputs = 3, 8, 3

W1 = (torch.randn(num_inputs, num_hiddens) * 0.01).requires_grad_()
b1 = torch.zeros(num_hiddens, requires_grad=True)
W2 = (torch.randn(num_hiddens, num_outputs) * 0.01).requires_grad_()
b2 = torch.zeros(num_outputs, requires_grad=True)
params = [W1, b1, W2, b2]
