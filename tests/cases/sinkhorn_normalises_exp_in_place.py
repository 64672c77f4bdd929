# %% [case]
# id: sinkhorn-normalises-exp-in-place
# source: self-supervised clustering, Sinkhorn iterations with gradient through them
# family: modified
# fails: 3
# culprit: 1:14
# saved: 1:11
# needed: 3:4
# effect: same
# observe: [prototypes.weight.grad.clone()]
# note: Q is the result of exp and is divided in place in a loop, rows and columns. Fix: Q = Q / ...
# %%
import torch
from torch import nn
import torch.nn.functional as F

class Sinkhorn(nn.Module):
    def __init__(self, num_iters=3, epsilon=0.5):
        super().__init__()
        self.num_iters, self.epsilon = num_iters, epsilon

    def forward(self, out):
        Q = torch.exp(out / self.epsilon).t() # K x B
        B, K = Q.shape[1], Q.shape[0]
        # make the matrix sums to 1
        Q /= torch.sum(Q)
        for it in range(self.num_iters):
            Q /= torch.sum(Q, dim=1, keepdim=True)
            Q /= K
            Q /= torch.sum(Q, dim=0, keepdim=True)
            Q /= B
        Q *= B
        return Q.t()
# %%
torch.manual_seed(0)
prototypes = nn.Linear(4, 3, bias=False)
sinkhorn = Sinkhorn()
z1, z2 = (F.normalize(torch.randn(6, 4), dim=1) for _ in range(2))
# %%
s1, s2 = prototypes(z1), prototypes(z2)
q1, q2 = sinkhorn(s1), sinkhorn(s2)
loss = -0.5 * ((q1 * F.log_softmax(s2 / 0.1, 1)).sum(1).mean() + (q2 * F.log_softmax(s1 / 0.1, 1)).sum(1).mean())
loss.backward()
# %% [fixed 1]
import torch
from torch import nn
import torch.nn.functional as F

class Sinkhorn(nn.Module):
    def __init__(self, num_iters=3, epsilon=0.5):
        super().__init__()
        self.num_iters, self.epsilon = num_iters, epsilon

    def forward(self, out):
        Q = torch.exp(out / self.epsilon).t() # K x B
        B, K = Q.shape[1], Q.shape[0]
        # make the matrix sums to 1
        Q = Q / torch.sum(Q)
        for it in range(self.num_iters):
            Q = Q / torch.sum(Q, dim=1, keepdim=True)
            Q = Q / K
            Q = Q / torch.sum(Q, dim=0, keepdim=True)
            Q = Q / B
        Q = Q * B
        return Q.t()
