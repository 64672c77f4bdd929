# %% [case]
# id: spiking-layer-soft-reset-in-place
# source: spiking network with an own surrogate gradient Function
# family: modified
# fails: 3
# culprit: 1:26
# saved: 1:7 | 1:24
# needed: 1:13 | 3:3
# effect: same
# observe: [p.grad.clone() for p in snn.parameters()]
# note: the surrogate saved the membrane potential, the soft reset subtracts from it in place. Fix: mem = mem - spk * thr.
# %%
import torch
import torch.nn as nn

class FastSigmoid(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v, thr):
        ctx.save_for_backward(v)
        ctx.thr = thr
        return (v > thr).float()

    @staticmethod
    def backward(ctx, g):
        v, = ctx.saved_tensors
        return g / (10 * (v - ctx.thr).abs() + 1) ** 2, None

class LIF(nn.Module):
    def __init__(self, beta=0.9, thr=0.5):
        super().__init__()
        self.beta, self.thr = nn.Parameter(torch.tensor(beta)), thr
    def forward(self, cur):
        mem, out = torch.zeros_like(cur[0]), []
        for i in cur:
            mem = self.beta * mem + i
            spk = FastSigmoid.apply(mem, self.thr)
            # reset by subtraction
            mem -= spk * self.thr
            out.append(spk)
        return torch.stack(out)
# %%
torch.manual_seed(0)
snn = nn.Sequential(nn.Linear(4, 6), LIF(), nn.Linear(6, 3), LIF())
spikes = (torch.rand(5, 2, 4) > 0.5).float()
# %%
rate = snn(spikes).mean(0)
loss = nn.functional.mse_loss(rate, torch.full((2, 3), 0.4))
loss.backward()
# %% [fixed 1]
import torch
import torch.nn as nn

class FastSigmoid(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v, thr):
        ctx.save_for_backward(v)
        ctx.thr = thr
        return (v > thr).float()

    @staticmethod
    def backward(ctx, g):
        v, = ctx.saved_tensors
        return g / (10 * (v - ctx.thr).abs() + 1) ** 2, None

class LIF(nn.Module):
    def __init__(self, beta=0.9, thr=0.5):
        super().__init__()
        self.beta, self.thr = nn.Parameter(torch.tensor(beta)), thr
    def forward(self, cur):
        mem, out = torch.zeros_like(cur[0]), []
        for i in cur:
            mem = self.beta * mem + i
            spk = FastSigmoid.apply(mem, self.thr)
            # reset by subtraction
            mem = mem - spk * self.thr
            out.append(spk)
        return torch.stack(out)
