# %% [case]
# id: complex-kernel-tapered-in-its-getter
# source: neural operators that keep complex weights as pairs
# family: view_of_leaf
# fails: 2
# culprit: 1:13
# saved: -
# needed: -
# effect: same
# observe: [p.grad.clone() for p in net.parameters()]
# note: a method gives back a view of a parameter that it has written into. Fix: out of place.
# %%
import torch
import torch.nn as nn
torch.manual_seed(4)

class Taper(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.pairs = nn.Parameter(torch.randn(width, 2))
        self.register_buffer("window", torch.linspace(1, 0.2, width))

    def kernel(self):
        kernel = torch.view_as_complex(self.pairs)
        kernel *= self.window
        return kernel

    def forward(self, signal):
        return torch.fft.irfft(torch.fft.rfft(signal) * self.kernel(), n=signal.size(-1))
# %%
net = Taper(5)
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
signal = torch.randn(4, 8)
for _ in range(3):
    loss = (net(signal) - signal.roll(1, -1)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
# %% [fixed 1]
import torch
import torch.nn as nn
torch.manual_seed(4)

class Taper(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.pairs = nn.Parameter(torch.randn(width, 2))
        self.register_buffer("window", torch.linspace(1, 0.2, width))

    def kernel(self):
        kernel = torch.view_as_complex(self.pairs)
        return kernel * self.window

    def forward(self, signal):
        return torch.fft.irfft(torch.fft.rfft(signal) * self.kernel(), n=signal.size(-1))
