# %% [case]
# id: silent-permanent-graph-in-closure
# source: a graph made once and sent back for each new value, in other words
# family: silent
# fails: -
# culprit: 3:7
# saved: 2:5
# needed: 3:9
# effect: same
# observe: [out['grad'].clone() for out in results]
# note: the permanent's graph is built once and its entries are then overwritten through .data; the inner permanents in the graph are those of the first values. Fix: rebuild it after each overwrite.
# %%
import torch
torch.manual_seed(77)
torch.set_default_dtype(torch.float64)
# %%
def permanent(m, used=()):
    """sum over permutations, no signs"""
    i = len(used)
    if i == len(m): return 1.0
    terms = [m[i][j] * permanent(m, used + (j,)) for j in range(len(m)) if j not in used]
    return sum(terms)

def build(x):
    n = x.size(0)
    return permanent([[x[i, j] for j in range(n)] for i in range(n)])
# %%
def evaluator(n):
    x = torch.zeros(n, n, requires_grad=True)
    x.data.uniform_()
    value = build(x)
    def at(new):
        for idx in range(n * n):
            x.data.view(-1)[idx] = new.view(-1)[idx]
        x.grad = None
        value.backward(retain_graph=True)
        return {'grad': x.grad}
    return at
# %%
at = evaluator(3)
results = [at(torch.rand(3, 3)) for _ in range(2)]
# %% [fixed 3]
def evaluator(n):
    x = torch.zeros(n, n, requires_grad=True)
    x.data.uniform_()
    def at(new):
        for idx in range(n * n):
            x.data.view(-1)[idx] = new.view(-1)[idx]
        x.grad = None
        value = build(x)
        value.backward()
        return {'grad': x.grad}
    return at
