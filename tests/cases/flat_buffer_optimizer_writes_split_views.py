# %% [case]
# id: flat-buffer-optimizer-writes-split-views
# source: https://app.semanticdiff.com/gh/microsoft/DeepSpeed/commit/37e232faf9c810e0f84b467b9c70fed82b792d0a
# family: multi_output_view
# fails: 4
# culprit: 3:30
# saved: -
# needed: 3:30
# effect: same
# observe: losses + [p.detach().clone() for p in net.parameters()]
# note: torch.cat of parameters is part of a graph, its split views become the parameters' storage and are written in step(). Merged fix: detach the flat buffer.
# %%
import torch
import torch.nn as nn
torch.manual_seed(7948)
# %%
def unflatten(flat, tensors):
    views = flat.split([t.numel() for t in tensors])
    return [v.view_as(t) for v, t in zip(views, tensors)]
# %%
class FlatAdam:
    """one flat fp32 master copy and one flat working buffer; the model's weights are views of the latter"""
    def __init__(self, params, lr=1e-2, betas=(0.9, 0.99), eps=1e-8):
        self.params = list(params)
        self.lr, self.betas, self.eps, self.t = lr, betas, eps, 0
        self.flat = self._flatten_on_accelerator()
        self.master = self.flat.detach().clone().double()
        self.m, self.v = torch.zeros_like(self.master), torch.zeros_like(self.master)
        self.views = unflatten(self.flat, self.params)
        for p, view in zip(self.params, self.views):
            p.data = view.data

    def _flatten_on_accelerator(self):
        return torch.cat([p.reshape(-1) for p in self.params])

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    def step(self):
        self.t += 1
        g = torch.cat([p.grad.reshape(-1) for p in self.params]).double()
        b1, b2 = self.betas
        self.m.mul_(b1).add_(g, alpha=1 - b1)
        self.v.mul_(b2).addcmul_(g, g, value=1 - b2)
        m_hat, v_hat = self.m / (1 - b1 ** self.t), self.v / (1 - b2 ** self.t)
        self.master -= self.lr * m_hat / (v_hat.sqrt() + self.eps)
        # back to the low precision weights
        for view, new in zip(self.views, unflatten(self.master, self.params)):
            view.copy_(new)
# %%
net = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 1))
opt = FlatAdam(net.parameters())
X = torch.randn(16, 4); Y = X[:, :1] * X[:, 1:2]
losses = []
for step in range(4):
    opt.zero_grad()
    loss = (net(X) - Y).pow(2).mean()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses)
# %% [fixed 3]
class FlatAdam:
    """one flat fp32 master copy and one flat working buffer; the model's weights are views of the latter"""
    def __init__(self, params, lr=1e-2, betas=(0.9, 0.99), eps=1e-8):
        self.params = list(params)
        self.lr, self.betas, self.eps, self.t = lr, betas, eps, 0
        self.flat = self._flatten_on_accelerator()
        self.master = self.flat.detach().clone().double()
        self.m, self.v = torch.zeros_like(self.master), torch.zeros_like(self.master)
        self.views = unflatten(self.flat, self.params)
        for p, view in zip(self.params, self.views):
            p.data = view.data

    def _flatten_on_accelerator(self):
        return torch.cat([p.reshape(-1) for p in self.params]).detach()

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    def step(self):
        self.t += 1
        g = torch.cat([p.grad.reshape(-1) for p in self.params]).double()
        b1, b2 = self.betas
        self.m.mul_(b1).add_(g, alpha=1 - b1)
        self.v.mul_(b2).addcmul_(g, g, value=1 - b2)
        m_hat, v_hat = self.m / (1 - b1 ** self.t), self.v / (1 - b2 ** self.t)
        self.master -= self.lr * m_hat / (v_hat.sqrt() + self.eps)
        # back to the low precision weights
        for view, new in zip(self.views, unflatten(self.master, self.params)):
            view.copy_(new)
