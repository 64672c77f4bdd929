# %% [case]
# id: learned-optimizer-lstm-state-across-unrolls
# source: https://blog.csdn.net/senius/article/details/84483329 (learning to learn by gradient descent, PyTorch practice), https://github.com/chenwydj/learning-to-learn-by-gradient-descent-by-gradient-descent
# family: second_backward
# fails: 4
# culprit: 3:10
# saved: 1:26 | 1:25
# needed: 3:18
# effect: truncates
# observe: [p.detach().clone() for p in opt_net.parameters()] + [torch.tensor(history)]
# note: after each unroll the optimizee's parameters are detached, but the LSTM's (h, c) still carry the graph of the previous unroll, which all_losses.backward() has freed. Human fix: detach the states too.
# %%
import torch
import torch.nn as nn
torch.manual_seed(1606)

class QuadraticLoss:
    """f(theta) = || W theta - y ||^2, a new one per task"""
    def __init__(self, dim=5):
        self.W = torch.randn(dim, dim)
        self.y = torch.randn(dim)

    def get_loss(self, theta):
        return torch.sum((self.W.matmul(theta) - self.y) ** 2)

class LSTMOptimizer(nn.Module):
    """coordinatewise LSTM: every coordinate of theta is one row of the batch"""
    def __init__(self, hidden_sz=8):
        super().__init__()
        self.hidden_sz = hidden_sz
        self.recurs = nn.LSTMCell(1, hidden_sz)
        self.recurs2 = nn.LSTMCell(hidden_sz, hidden_sz)
        self.output = nn.Linear(hidden_sz, 1)

    def forward(self, grad, states):
        (h0, c0), (h1, c1) = states
        h0, c0 = self.recurs(grad.unsqueeze(1), (h0, c0))
        h1, c1 = self.recurs2(h0, (h1, c1))
        return self.output(h1).squeeze(1), [(h0, c0), (h1, c1)]

    def initial_states(self, n):
        return [tuple(torch.zeros(n, self.hidden_sz) for _ in 'hc') for _ in range(2)]
# %%
opt_net = LSTMOptimizer()
meta_opt = torch.optim.Adam(opt_net.parameters(), lr=3e-3)
OUT_MUL = 0.1
# %%
def do_fit(opt_net, meta_opt, target, unroll=4, optim_it=12, dim=5):
    opt_net.train()
    theta = torch.zeros(dim, requires_grad=True)
    states = opt_net.initial_states(dim)
    all_losses_ever, all_losses = [], None

    for iteration in range(1, optim_it + 1):
        # the gradient of the optimizee is treated as an input (no second order)
        grad, = torch.autograd.grad(target.get_loss(theta), theta)
        update, states = opt_net(grad.detach(), states)
        theta = theta + OUT_MUL * update

        loss = target.get_loss(theta)
        all_losses = loss if all_losses is None else all_losses + loss
        all_losses_ever.append(loss.item())
        if iteration % unroll == 0:
            meta_opt.zero_grad()
            all_losses.backward()
            meta_opt.step()
            all_losses = None
            theta = theta.detach().requires_grad_()   # truncate
    return all_losses_ever
# %%
history = []
for epoch in range(2):
    losses = do_fit(opt_net, meta_opt, QuadraticLoss())
    history.append(losses[-1])
    print(f'epoch {epoch}: {losses[0]:.3f} -> {losses[-1]:.3f}')
# %% [fixed 3]
def do_fit(opt_net, meta_opt, target, unroll=4, optim_it=12, dim=5):
    opt_net.train()
    theta = torch.zeros(dim, requires_grad=True)
    states = opt_net.initial_states(dim)
    all_losses_ever, all_losses = [], None

    for iteration in range(1, optim_it + 1):
        # the gradient of the optimizee is treated as an input (no second order)
        grad, = torch.autograd.grad(target.get_loss(theta), theta)
        update, states = opt_net(grad.detach(), states)
        theta = theta + OUT_MUL * update

        loss = target.get_loss(theta)
        all_losses = loss if all_losses is None else all_losses + loss
        all_losses_ever.append(loss.item())
        if iteration % unroll == 0:
            meta_opt.zero_grad()
            all_losses.backward()
            meta_opt.step()
            all_losses = None
            theta = theta.detach().requires_grad_()   # truncate
            states = [tuple(s.detach() for s in pair) for pair in states]
    return all_losses_ever
