# %% [case]
# id: hopfield-asynchronous-updates
# source: continuous Hopfield network with asynchronous updates, learned by backpropagation
# family: modified
# fails: 3
# culprit: 2:8
# saved: 2:7
# needed: 3:5
# effect: same
# observe: [W.grad.clone()]
# note: each unit is written into s while the earlier matvec saved s. Fix: s = s.clone() before the write.
# %%
import torch
torch.manual_seed(1)
n = 6
W = (torch.randn(n, n) * 0.3).requires_grad_()
pattern = torch.sign(torch.randn(n))
# %%
def energy(s, W):
    return -0.5 * s @ W @ s

def settle(s, W, beta=1.5, sweeps=2):
    for _ in range(sweeps):
        for i in torch.randperm(len(s)).tolist():
            field = W[i] @ s
            s[i] = torch.tanh(beta * field)
    return s
# %%
probe = pattern.clone()
probe[:2] *= -1               # corrupt two bits
settled = settle(probe, W)
recall = ((settled - pattern) ** 2).mean()
recall.backward()
print(recall.item(), W.grad.abs().sum())
# %% [fixed 2]
def energy(s, W):
    return -0.5 * s @ W @ s

def settle(s, W, beta=1.5, sweeps=2):
    for _ in range(sweeps):
        for i in torch.randperm(len(s)).tolist():
            field = W[i] @ s
            s = s.clone()
            s[i] = torch.tanh(beta * field)
    return s
