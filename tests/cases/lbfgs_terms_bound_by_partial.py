# %% [case]
# id: lbfgs-terms-bound-by-partial
# source: a textbook mistake in other words
# family: second_backward
# fails: 3
# culprit: -
# saved: -
# needed: 1:21
# effect: same
# observe: [p.detach().clone() for p in job.params.values()]
# note: the terms of the model are computed before step() and the objective only adds them up; LBFGS calls it again. Fix: compute the terms in the objective.
# %%
import torch
from functools import partial

class DecayFit:
    """sum of exponentials, y(t) = sum a_i exp(-k_i t)"""
    def __init__(self, t, y, rates):
        self.t, self.y = t, y
        self.params = {f'a{i}': torch.ones((), requires_grad=True) for i in range(len(rates))}
        self.params.update({f'k{i}': torch.tensor(r, requires_grad=True) for i, r in enumerate(rates)})
        self.opt = torch.optim.LBFGS(list(self.params.values()), max_iter=6, history_size=4)
        self.calls = 0

    def terms(self):
        n = len(self.params) // 2
        return [self.params[f'a{i}'] * torch.exp(-self.params[f'k{i}'] * self.t) for i in range(n)]

    def objective(self, terms):
        self.calls += 1
        self.opt.zero_grad(set_to_none=True)
        loss = ((sum(terms) - self.y) ** 2).sum()
        loss.backward()
        return loss

    def run(self):
        return self.opt.step(partial(self.objective, self.terms()))
# %%
t = torch.arange(0, 4, 0.25)
y = 2.0 * torch.exp(-0.4 * t) + 0.5 * torch.exp(-2.5 * t)
torch.manual_seed(0)
job = DecayFit(t, y, rates=[0.2, 1.5])
# %%
loss = job.run()
job.calls, float(loss)
# %% [fixed 1]
import torch
from functools import partial

class DecayFit:
    """sum of exponentials, y(t) = sum a_i exp(-k_i t)"""
    def __init__(self, t, y, rates):
        self.t, self.y = t, y
        self.params = {f'a{i}': torch.ones((), requires_grad=True) for i in range(len(rates))}
        self.params.update({f'k{i}': torch.tensor(r, requires_grad=True) for i, r in enumerate(rates)})
        self.opt = torch.optim.LBFGS(list(self.params.values()), max_iter=6, history_size=4)
        self.calls = 0

    def terms(self):
        n = len(self.params) // 2
        return [self.params[f'a{i}'] * torch.exp(-self.params[f'k{i}'] * self.t) for i in range(n)]

    def objective(self):
        self.calls += 1
        self.opt.zero_grad(set_to_none=True)
        loss = ((sum(self.terms()) - self.y) ** 2).sum()
        loss.backward()
        return loss

    def run(self):
        return self.opt.step(self.objective)
