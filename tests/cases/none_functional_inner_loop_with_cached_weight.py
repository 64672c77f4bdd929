# %% [case]
# id: none-functional-inner-loop-with-cached-weight
# source: own, after docs torch.func.functional_call, torch.nn.utils.parametrize.cached, torch.autograd.graph.saved_tensors_hooks and vector_to_parameters
# family: none
# fails: -
# culprit: -
# saved: -
# needed: -
# effect: same
# observe: [p.detach().clone() for p in net.parameters()] + [torch.tensor(sizes), torch.tensor(val)]
# note: Healthy: the inner steps build new tensors with create_graph; cached() holds one outer backward; retain_graph only where the graph is used twice; _saved_* is read before backward; the hooks pack a copy; the trial weights are written after backward and restored; gradients are cloned before they are scaled in place.
# %%
import torch
from torch import nn
from torch.func import functional_call
import torch.nn.utils.parametrize as parametrize
from torch.nn.utils import parameters_to_vector, vector_to_parameters
class Symmetric(nn.Module):
    def forward(self, X): return X.triu() + X.triu(1).transpose(-1, -2)
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.sym, self.head = nn.Linear(4, 4), nn.Linear(4, 1)
        parametrize.register_parametrization(self.sym, "weight", Symmetric())
    def forward(self, x): return self.head(torch.tanh(self.sym(torch.tanh(self.sym(x)))))
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
# %%
def inner(task_x, task_y, steps=2, lr=0.1):
    fast = dict(net.head.named_parameters())
    with parametrize.cached():
        feat = torch.tanh(net.sym(torch.tanh(net.sym(task_x))))
    for _ in range(steps):
        loss = (functional_call(net.head, fast, (feat,)) - task_y).square().mean()
        grads = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
        fast = {k: w - lr * g for (k, w), g in zip(fast.items(), grads)}
    return functional_call(net.head, fast, (feat,))
# %%
tasks = [(torch.randn(5, 4), torch.randn(5, 1)) for _ in range(3)]
sizes = []
def pack(t):
    sizes.append(t.numel())
    return t.clone()
for epoch in range(2):
    opt.zero_grad(set_to_none=False)
    with parametrize.cached(), torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        total = torch.stack([(inner(x, y) - y).square().mean() for x, y in tasks]).mean()
        penalty = net.sym.weight.square().sum()
        gp, = torch.autograd.grad(penalty, net.sym.parametrizations.weight.original, retain_graph=True)
        (total + 1e-3 * penalty).backward()
    gp.mul_(1e-3)
    opt.step()
# %%
x, y = tasks[0]
loss = (net(x) - y).abs().mean()
node = loss.grad_fn
n_saved = node.next_functions[0][0]._saved_self.numel()
loss.backward()
grads = {n: p.grad.clone() for n, p in net.named_parameters()}
for g in grads.values(): g.div_(g.norm() + 1e-8)
# try a step along the normalised gradient, then go back
theta = parameters_to_vector(net.parameters()).detach().clone()
vector_to_parameters(theta - 1e-2 * parameters_to_vector(grads.values()), net.parameters())
with torch.no_grad(): val = (net(x) - y).abs().mean().item()
vector_to_parameters(theta, net.parameters())
print(n_saved, val)
