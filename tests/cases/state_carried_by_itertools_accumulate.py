# %% [case]
# id: state-carried-by-itertools-accumulate
# source: a textbook mistake in other words
# family: second_backward
# fails: 3
# culprit: -
# saved: -
# needed: 3:6
# effect: truncates
# observe: [p.detach().clone() for p in params]
# note: itertools.accumulate keeps the last state inside the iterator. Fix: detach it in the step function.
# %%
from itertools import accumulate, islice
import torch
torch.manual_seed(2)

def make_params(n_in, n_hid):
    shapes = {"wx": (n_in, n_hid), "wh": (n_hid, n_hid), "b": (n_hid,)}
    return {k: (0.3 * torch.randn(s)).requires_grad_() for k, s in shapes.items()}

P = make_params(2, 6)
params = list(P.values())
optimizer = torch.optim.SGD(params, lr=0.05)
# %%
def step(state, x):
    return torch.tanh(x @ P["wx"] + state @ P["wh"] + P["b"])

def states(xs, h0):
    # skip the initial state
    yield from islice(accumulate(xs, step, initial=h0), 1, None)
# %%
xs = torch.randn(5, 3, 2)
total = 0.0
for h in states(xs, h0=torch.zeros(3, 6)):
    energy = (h ** 2).mean()
    optimizer.zero_grad()
    energy.backward()
    optimizer.step()
    total += float(energy)
total
# %% [fixed 2]
def step(state, x):
    return torch.tanh(x @ P["wx"] + state.detach() @ P["wh"] + P["b"])

def states(xs, h0):
    # skip the initial state
    yield from islice(accumulate(xs, step, initial=h0), 1, None)
