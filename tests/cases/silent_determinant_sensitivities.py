# %% [case]
# id: silent-determinant-sensitivities
# source: a graph made once and sent back for each new value, in other words
# family: silent
# fails: -
# culprit: 4:3
# saved: 2:9
# needed: 4:4
# effect: same
# observe: [d.clone() for d in sens]
# note: the determinant's graph is recorded once, and new matrices are copied in through .data; the inner products saved by the graph stay those of the first matrix. Fix: the determinant is computed again for every matrix.
# %%
import torch
torch.manual_seed(31)
# %%
def sub(rows, col):
    return [[v for c, v in enumerate(r) if c != col] for r in rows[1:]]

def laplace(rows):
    if len(rows) == 1:
        return rows[0][0]
    acc, sign = 0., 1.
    for col, v in enumerate(rows[0]):
        acc = acc + sign * v * laplace(sub(rows, col))
        sign = -sign
    return acc
# %%
M = torch.nn.Parameter(torch.rand(3, 3))
det = laplace([list(row) for row in M])
# %%
sens = []
for k in range(4):
    M.data.copy_(torch.rand(3, 3))
    g, = torch.autograd.grad(det, M, retain_graph=True)
    sens.append(g)
# %% [fixed 4]
sens = []
for k in range(4):
    M.data.copy_(torch.rand(3, 3))
    det = laplace([list(row) for row in M])
    g, = torch.autograd.grad(det, M)
    sens.append(g)
