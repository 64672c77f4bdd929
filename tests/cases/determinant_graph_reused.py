# %% [case]
# id: determinant-graph-reused
# source: https://discuss.pytorch.org/t/how-does-one-reuse-the-autograd-computational-graph/190447
# family: silent
# fails: -
# culprit: 3:11
# saved: 2:7|2:12
# needed: 3:13
# effect: same
# observe: [g.clone() for g in grads]
# note: the graph is recorded once and reused by new entries through .data; the inner minors stay those of the first matrix. Fix: computed again after every write.
# %%
import numpy
import torch
numpy.random.seed(190447)
torch.manual_seed(190447)
# %%
def minor(a, n, skip_row, skip_col):
    return [[a[i][j] for j in range(n) if j != skip_col] for i in range(n) if i != skip_row]

def det_by_minors(a):
    n = len(a)
    if n == 2:
        return a[0][0] * a[1][1] - a[0][1] * a[1][0]
    total = 0.0
    for j in range(n):
        # expand along the first row
        sign = -1.0 if j % 2 else 1.0
        total = total + sign * a[0][j] * det_by_minors(minor(a, n, 0, j))
    return total

def entries(ax):
    n = ax.shape[0]
    return [[ax[i, j] for j in range(n)] for i in range(n)]
# %%
n = 3
x = numpy.random.uniform(0.0, 1.0, (n, n))
ax = torch.tensor(x, requires_grad=True)
az = det_by_minors(entries(ax))

grads = []
for trial in range(3):
    x = numpy.random.uniform(0.0, 1.0, (n, n))
    for i in range(n):
        for j in range(n):
            ax.data[i, j] = x[i, j]
    ax.grad = None
    az.backward(retain_graph=True)
    grads.append(ax.grad)
# %% [fixed 3]
n = 3
x = numpy.random.uniform(0.0, 1.0, (n, n))
ax = torch.tensor(x, requires_grad=True)

grads = []
for trial in range(3):
    x = numpy.random.uniform(0.0, 1.0, (n, n))
    for i in range(n):
        for j in range(n):
            ax.data[i, j] = x[i, j]
    ax.grad = None
    az = det_by_minors(entries(ax))
    az.backward()
    grads.append(ax.grad)
