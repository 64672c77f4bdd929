# %% [case]
# id: fourier-layer-writes-its-own-spectrum
# source: Fourier neural operator, low modes multiplied in place in the spectrum
# family: modified
# fails: 4
# culprit: 1:14
# saved: 1:14
# needed: 4:2
# effect: same
# observe: [p.grad.clone() for p in fno.parameters()]
# note: einsum saved a slice of x_ft, which the result then overwrites. Fix: a new spectrum out_ft.
# %%
import torch
import torch.nn as nn

class SpectralConv1d(nn.Module):
    def __init__(self, c_in, c_out, modes):
        super().__init__()
        self.modes = modes
        scale = 1 / (c_in * c_out)
        self.weights = nn.Parameter(scale * torch.rand(c_in, c_out, modes, dtype=torch.cfloat))

    def forward(self, x):
        x_ft = torch.fft.rfft(x)
        # multiply relevant Fourier modes
        x_ft[:, :, :self.modes] = torch.einsum("bix,iox->box", x_ft[:, :, :self.modes], self.weights)
        return torch.fft.irfft(x_ft, n=x.size(-1))
# %%
class FNO1d(nn.Module):
    def __init__(self, width=3, modes=4):
        super().__init__()
        self.p = nn.Conv1d(1, width, 1)
        self.k = nn.ModuleList(SpectralConv1d(width, width, modes) for _ in range(2))
        self.w = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(2))
        self.q = nn.Conv1d(width, 1, 1)
    def forward(self, u):
        u = self.p(u)
        for k, w in zip(self.k, self.w):
            u = torch.nn.functional.gelu(k(u) + w(u))
        return self.q(u)
# %%
torch.manual_seed(0)
fno = FNO1d()
u0, uT = torch.randn(2, 1, 16), torch.randn(2, 1, 16)
# %%
rel = (fno(u0) - uT).norm() / uT.norm()
rel.backward()
# %% [fixed 1]
import torch
import torch.nn as nn

class SpectralConv1d(nn.Module):
    def __init__(self, c_in, c_out, modes):
        super().__init__()
        self.modes = modes
        scale = 1 / (c_in * c_out)
        self.weights = nn.Parameter(scale * torch.rand(c_in, c_out, modes, dtype=torch.cfloat))

    def forward(self, x):
        x_ft = torch.fft.rfft(x)
        # multiply relevant Fourier modes
        out_ft = x_ft.clone()
        out_ft[:, :, :self.modes] = torch.einsum("bix,iox->box", x_ft[:, :, :self.modes], self.weights)
        return torch.fft.irfft(out_ft, n=x.size(-1))
