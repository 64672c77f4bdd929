# %% [case]
# id: sparsellm-pruning-updates-activation-chunk
# source: BaiTheBest/SparseLLM#13
# family: leaf
# fails: 4
# culprit: 2:15
# saved: -
# needed: 2:15
# effect: same
# observe: [s.clone(), history]
# note: gradient steps by hand on a leaf chunk: s_batch -= lr * s_batch.grad. The thread's s_batch = s_batch - ... makes it a non-leaf, the next line (.grad.zero_()) then fails. Right fix: the update under torch.no_grad().
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F
from dataclasses import dataclass
torch.manual_seed(13)

@dataclass
class PruneArgs:
    alpha: float = 5.0
    beta: float = 5.0
    s_learning_rate: float = 0.02
    s_epochs: int = 2
    chunk: int = 8

class MLPBlock(nn.Module):
    '''up / gate / down of one LLaMA layer'''
    def __init__(self, hidden=6, inter=10):
        super().__init__()
        self.up_proj = nn.Linear(hidden, inter, bias=False)
        self.gate_proj = nn.Linear(hidden, inter, bias=False)
        self.down_proj = nn.Linear(inter, hidden, bias=False)
    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
# %%
def magnitude_prune_(linear, sparsity=0.5):
    W = linear.weight.data
    thresh = W.abs().flatten().kthvalue(int(W.numel() * sparsity))[0]
    W[W.abs() <= thresh] = 0

def optimise_s(s, z, p, args):
    '''auxiliary gate activations: stay near their linear output, explain the product p'''
    history = []
    for epoch in range(args.s_epochs):
        for start in range(0, s.shape[1], args.chunk):
            chunk = slice(start, start + args.chunk)
            s_batch = s[:, chunk].clone().float().requires_grad_(True)
            loss_s = args.alpha * F.mse_loss(s_batch, z[:, chunk]) + args.beta * F.mse_loss(F.silu(s_batch), p[:, chunk])
            loss_s.backward()
            s_batch -= args.s_learning_rate * s_batch.grad
            s_batch.grad.zero_()
            s[:, chunk] = s_batch.detach().to(dtype=s.dtype)
            history.append(round(loss_s.item(), 5))
    return history
# %%
args = PruneArgs()
block = MLPBlock()
calib = torch.randn(20, 6)
with torch.no_grad():
    z = block.gate_proj(calib).t()            # dense gate pre-activations
    p = (F.silu(block.gate_proj(calib)) * block.up_proj(calib)).t()
    for name in ('up_proj', 'gate_proj'):
        magnitude_prune_(getattr(block, name))
    s = block.gate_proj(calib).t().contiguous()
print('sparsity', (block.up_proj.weight == 0).float().mean().item())
# %%
history = optimise_s(s, z, p, args)
print(history[0], '->', history[-1])
# refit the gate with the new targets
block.gate_proj.weight.data = (torch.linalg.pinv(calib) @ s.t()).t()
# %% [fixed 2]
def magnitude_prune_(linear, sparsity=0.5):
    W = linear.weight.data
    thresh = W.abs().flatten().kthvalue(int(W.numel() * sparsity))[0]
    W[W.abs() <= thresh] = 0

def optimise_s(s, z, p, args):
    '''auxiliary gate activations: stay near their linear output, explain the product p'''
    history = []
    for epoch in range(args.s_epochs):
        for start in range(0, s.shape[1], args.chunk):
            chunk = slice(start, start + args.chunk)
            s_batch = s[:, chunk].clone().float().requires_grad_(True)
            loss_s = args.alpha * F.mse_loss(s_batch, z[:, chunk]) + args.beta * F.mse_loss(F.silu(s_batch), p[:, chunk])
            loss_s.backward()
            with torch.no_grad():
                s_batch -= args.s_learning_rate * s_batch.grad
            s_batch.grad.zero_()
            s[:, chunk] = s_batch.detach().to(dtype=s.dtype)
            history.append(round(loss_s.item(), 5))
    return history
