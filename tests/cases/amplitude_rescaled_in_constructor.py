# %% [case]
# id: amplitude-rescaled-in-constructor
# source: https://github.com/jobovy/galpy/pull/1120
# family: leaf
# fails: 3
# culprit: 2:17
# saved: -
# needed: 2:17
# effect: same
# observe: [amp.grad.clone(), a.grad.clone(), v.detach()]
# note: self._amp is the caller's leaf and __init__ rescales it in place. Fix of the PR: self._amp = self._amp / (...).
# %%
import math
import torch
torch.manual_seed(1120)
# %%
class Potential:
    def __init__(self, amp=1.):
        self._amp = amp
    def __call__(self, R, z):
        return self._amp * self._evaluate(R, z)
    def vcirc(self, R):
        R = R.detach().requires_grad_()
        phi = self(R, torch.zeros_like(R))
        dphi, = torch.autograd.grad(phi.sum(), R, create_graph=True)
        return torch.sqrt(R * dphi)

class TwoPowerPotential(Potential):
    """Hernquist; amp is the density normalisation"""
    def __init__(self, amp=1., a=1., normalize=False):
        Potential.__init__(self, amp=amp)
        self.a = a
        self._amp /= 4. * math.pi * self.a ** 3
        if normalize:
            self._amp = self._amp / self.vcirc(torch.ones(1)).detach() ** 2
    def _evaluate(self, R, z):
        r = torch.sqrt(R ** 2 + z ** 2)
        return -1. / (2. * self.a) / (1. + r / self.a)
# %%
amp = torch.tensor(60., requires_grad=True)
a = torch.tensor(1.3, requires_grad=True)
pot = TwoPowerPotential(amp=amp, a=a)

Rs = torch.linspace(.5, 4., 8)
v_obs = 1. + .05 * torch.randn(8)
v = pot.vcirc(Rs)
chi2 = ((v - v_obs) ** 2).sum()
chi2.backward()
print(amp.grad, a.grad)
# %% [fixed 2]
class Potential:
    def __init__(self, amp=1.):
        self._amp = amp
    def __call__(self, R, z):
        return self._amp * self._evaluate(R, z)
    def vcirc(self, R):
        R = R.detach().requires_grad_()
        phi = self(R, torch.zeros_like(R))
        dphi, = torch.autograd.grad(phi.sum(), R, create_graph=True)
        return torch.sqrt(R * dphi)

class TwoPowerPotential(Potential):
    """Hernquist; amp is the density normalisation"""
    def __init__(self, amp=1., a=1., normalize=False):
        Potential.__init__(self, amp=amp)
        self.a = a
        self._amp = self._amp / (4. * math.pi * self.a ** 3)
        if normalize:
            self._amp = self._amp / self.vcirc(torch.ones(1)).detach() ** 2
    def _evaluate(self, R, z):
        r = torch.sqrt(R ** 2 + z ** 2)
        return -1. / (2. * self.a) / (1. + r / self.a)
