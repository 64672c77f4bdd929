# %% [case]
# id: gradnorm-initial-losses-keep-graph
# source: https://github.com/LucasBoTang/GradNorm (gradnorm.py: l0 = loss.detach()), https://github.com/hosseinshn/GradNorm/issues/2 (l0 must be the initial costs)
# family: second_backward
# fails: 4
# culprit: -
# saved: 3:15
# needed: 2:33
# effect: truncates
# observe: [gradnorm.weights.detach().clone()] + [p.detach().clone() for p in net.parameters()]
# note: the losses of the first iteration are kept as L(0) with their graph, and the ratio L(t)/L(0) leads every later gradnorm loss into it; it was freed in the first iteration. Human fix: self.l0 = loss.detach().
# %%
import torch
from torch import nn
torch.manual_seed(1711)

class MultiTaskNet(nn.Module):
    def __init__(self, n_in=6, n_tasks=2):
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(n_in, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU())
        self.heads = nn.ModuleList([nn.Linear(8, 3) for _ in range(n_tasks)])

    def get_last_shared_layer(self):
        return self.shared[2]

    def forward(self, x):
        h = self.shared(x)
        return [head(h) for head in self.heads]
# %%
class GradNorm(object):
    """Gradient normalization for adaptive loss balancing"""
    def __init__(self, net, n_tasks, alpha=0.12, lr=1e-2, lr2=2.5e-2):
        self.net, self.alpha, self.n_tasks = net, alpha, n_tasks
        self.layer = net.get_last_shared_layer()
        self.weights = nn.Parameter(torch.ones(n_tasks))
        self.optimizer1 = torch.optim.Adam(net.parameters(), lr=lr)
        self.optimizer2 = torch.optim.Adam([self.weights], lr=lr2)
        self.l0 = None
        self.log_weights = []

    def step(self, loss):
        """loss: tensor with one entry per task"""
        # set L(0)
        if self.l0 is None:
            self.T = self.weights.sum().detach()
            self.l0 = loss
        # compute the weighted loss
        self.optimizer1.zero_grad()
        (self.weights @ loss).backward(retain_graph=True)
        # the L2 norm of the gradients for each task
        gw = torch.stack([
            torch.autograd.grad(self.weights[i] * loss[i], self.layer.weight, retain_graph=True, create_graph=True)[0].norm()
            for i in range(self.n_tasks)
        ])
        # relative inverse training rate per task
        loss_ratio = loss.detach() / self.l0
        rt = loss_ratio / loss_ratio.mean()
        # gradnorm loss
        constant = gw.mean().detach() * rt ** self.alpha
        gradnorm_loss = torch.abs(gw - constant).sum()
        self.optimizer2.zero_grad()
        gradnorm_loss.backward()
        self.optimizer1.step()
        self.optimizer2.step()
        # renormalize weights
        with torch.no_grad():
            self.weights.mul_(self.T / self.weights.sum())
        self.log_weights.append(self.weights.tolist())
        return gradnorm_loss.item()
# %%
def make_toy_data(n=32, sigmas=(1.0, 10.0)):
    """the toy example of the paper: same function, different scales"""
    B = torch.randn(6, 3)
    eps = [0.3 * torch.randn(6, 3) for _ in sigmas]
    x = torch.randn(n, 6)
    return x, [s * torch.tanh(x @ (B + e)) for s, e in zip(sigmas, eps)]

x, targets = make_toy_data()
net = MultiTaskNet()
gradnorm = GradNorm(net, n_tasks=2)
mse = nn.MSELoss()

def task_losses(idx):
    outputs = net(x[idx])
    return torch.stack([mse(o, t[idx]) for o, t in zip(outputs, targets)])
# %%
for it, idx in enumerate(torch.arange(32).split(8)):
    gl = gradnorm.step(task_losses(idx))
    print(it, gl, gradnorm.log_weights[-1])
# %% [fixed 2]
class GradNorm(object):
    """Gradient normalization for adaptive loss balancing"""
    def __init__(self, net, n_tasks, alpha=0.12, lr=1e-2, lr2=2.5e-2):
        self.net, self.alpha, self.n_tasks = net, alpha, n_tasks
        self.layer = net.get_last_shared_layer()
        self.weights = nn.Parameter(torch.ones(n_tasks))
        self.optimizer1 = torch.optim.Adam(net.parameters(), lr=lr)
        self.optimizer2 = torch.optim.Adam([self.weights], lr=lr2)
        self.l0 = None
        self.log_weights = []

    def step(self, loss):
        """loss: tensor with one entry per task"""
        # set L(0)
        if self.l0 is None:
            self.T = self.weights.sum().detach()
            self.l0 = loss.detach()
        # compute the weighted loss
        self.optimizer1.zero_grad()
        (self.weights @ loss).backward(retain_graph=True)
        # the L2 norm of the gradients for each task
        gw = torch.stack([
            torch.autograd.grad(self.weights[i] * loss[i], self.layer.weight, retain_graph=True, create_graph=True)[0].norm()
            for i in range(self.n_tasks)
        ])
        # relative inverse training rate per task
        loss_ratio = loss.detach() / self.l0
        rt = loss_ratio / loss_ratio.mean()
        # gradnorm loss
        constant = gw.mean().detach() * rt ** self.alpha
        gradnorm_loss = torch.abs(gw - constant).sum()
        self.optimizer2.zero_grad()
        gradnorm_loss.backward()
        self.optimizer1.step()
        self.optimizer2.step()
        # renormalize weights
        with torch.no_grad():
            self.weights.mul_(self.T / self.weights.sum())
        self.log_weights.append(self.weights.tolist())
        return gradnorm_loss.item()
