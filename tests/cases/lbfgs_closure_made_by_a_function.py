# %% [case]
# id: lbfgs-closure-made-by-a-function
# source: a textbook mistake in other words
# family: second_backward
# fails: 3
# culprit: -
# saved: -
# needed: 2:8
# effect: same
# observe: [p.detach().clone() for p in (height, centre, width)]
# note: the peaks are computed once and handed to a factory of the closure; LBFGS calls the closure again. Fix: the closure computes the peaks.
# %%
import torch
torch.manual_seed(2)
grid = torch.linspace(-3, 3, 40)
signal = 1.5 * torch.exp(-(grid + 1) ** 2) + 0.8 * torch.exp(-(grid - 1.2) ** 2 / 0.5)
height = torch.ones(2, 1, requires_grad=True)
centre = torch.tensor([[-0.7], [1.0]], requires_grad=True)
width = torch.ones(2, 1, requires_grad=True)
lbfgs = torch.optim.LBFGS([height, centre, width], lr=0.5, max_iter=5)
# %%
def peaks():
    return height * torch.exp(-(grid - centre) ** 2 / width ** 2)

def misfit_of(curves):
    def closure():
        lbfgs.zero_grad()
        misfit = (curves.sum(0) - signal).square().mean()
        misfit.backward()
        return misfit
    return closure
# %%
for sweep in range(3):
    misfit = lbfgs.step(misfit_of(peaks()))
    print(sweep, misfit.item())
# %% [fixed 2]
def peaks():
    return height * torch.exp(-(grid - centre) ** 2 / width ** 2)

def misfit_of():
    def closure():
        lbfgs.zero_grad()
        misfit = (peaks().sum(0) - signal).square().mean()
        misfit.backward()
        return misfit
    return closure
# %% [fixed 3]
for sweep in range(3):
    misfit = lbfgs.step(misfit_of())
    print(sweep, misfit.item())
