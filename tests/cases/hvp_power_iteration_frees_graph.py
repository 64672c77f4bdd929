# %% [case]
# id: hvp-power-iteration-frees-graph
# source: pytorch test/test_autograd.py TestAutograd.test_hessian_vector; https://github.com/tristandeleu/pytorch-maml-rl/pull/13 (why retain_graph=True in the Hessian-vector product)
# family: second_backward
# fails: 3
# culprit: 2:12
# saved: 2:4
# needed: 2:12
# effect: same
# observe: [torch.tensor(sharpness)] + [p.grad.clone() for p in net.parameters()]
# note: the graph that is freed is the one create_graph=True made of the gradient: the first Hessian-vector product frees it, the second power iteration needs it. Human fix: retain_graph=True in the product.
# %%
import torch
from torch import nn
torch.manual_seed(4)
net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
X = torch.randn(10, 3); Y = X.sum(1, keepdim=True).sin()
# %%
class HVP:
    def __init__(self, loss, params):
        self.params = list(params)
        self.grads = torch.autograd.grad(loss, self.params, create_graph=True)

    @property
    def size(self):
        return sum(p.numel() for p in self.params)

    def __matmul__(self, v):
        parts = [c.view_as(p) for c, p in zip(v.split([p.numel() for p in self.params]), self.params)]
        hv = torch.autograd.grad(self.grads, self.params, grad_outputs=parts)
        return torch.cat([h.reshape(-1) for h in hv])

def top_eigenvalue(H, iters=6):
    v = torch.ones(H.size) / H.size ** 0.5
    for _ in range(iters):
        Hv = H @ v
        eig = torch.dot(v, Hv).item()
        v = Hv / (Hv.norm() + 1e-12)
    return eig
# %%
loss = nn.functional.mse_loss(net(X), Y)
sharpness = top_eigenvalue(HVP(loss, net.parameters()))
print('lambda_max', round(sharpness, 4))
loss.backward()
# %% [fixed 2]
class HVP:
    def __init__(self, loss, params):
        self.params = list(params)
        self.grads = torch.autograd.grad(loss, self.params, create_graph=True)

    @property
    def size(self):
        return sum(p.numel() for p in self.params)

    def __matmul__(self, v):
        parts = [c.view_as(p) for c, p in zip(v.split([p.numel() for p in self.params]), self.params)]
        hv = torch.autograd.grad(self.grads, self.params, grad_outputs=parts, retain_graph=True)
        return torch.cat([h.reshape(-1) for h in hv])

def top_eigenvalue(H, iters=6):
    v = torch.ones(H.size) / H.size ** 0.5
    for _ in range(iters):
        Hv = H @ v
        eig = torch.dot(v, Hv).item()
        v = Hv / (Hv.norm() + 1e-12)
    return eig
