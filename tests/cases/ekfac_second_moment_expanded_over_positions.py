# %% [case]
# id: ekfac-second-moment-expanded-over-positions
# source: Thrandis/EKFAC-pytorch#8
# family: overlap
# fails: 4
# culprit: 2:34 | 2:40
# saved: -
# needed: 2:40
# effect: same
# observe: [p.detach().clone() for p in net.parameters()] + [precond.state[net[0]]['m2'].clone()]
# note: the running second moment is an expanded view (one value per input channel for all kernel positions), later m2.mul_().add_() is refused. Replacing mul_ by mul (asker) does not store the new value. Human fix: own memory, .clone() (or repeat) when it is made.
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(8)
net = nn.Sequential(
    nn.Conv2d(1, 4, 3, padding=1, bias=False),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(4 * 6 * 6, 3),
)
# %%
class EKFAC(torch.optim.Optimizer):
    '''K-FAC preconditioner in the Kronecker-factored eigenbasis (SUA for convolutions)'''
    def __init__(self, net, eps, sua=True, alpha=0.75, update_freq=2):
        self.eps, self.sua, self.alpha, self.update_freq, self.iter = eps, sua, alpha, update_freq, 0
        params = []
        for mod in net.modules():
            if isinstance(mod, nn.Conv2d):
                mod.register_forward_pre_hook(self._save_input)
                params.append({'params': [mod.weight], 'mod': mod})
        super().__init__(params, {})
        self._inputs = {}

    def _save_input(self, mod, i):
        if mod.training and torch.is_grad_enabled():
            self._inputs[mod] = i[0].detach()

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            weight, mod = group['params'][0], group['mod']
            state = self.state[mod]
            if self.iter % self.update_freq == 0:
                self._compute_kfe(mod, weight, state)
            self._precond_sua_ra(weight, state)
        self.iter += 1

    def _compute_kfe(self, mod, weight, state):
        x = self._inputs[mod].transpose(0, 1).flatten(1)
        d, state['kfe_x'] = torch.linalg.eigh(x @ x.t() / x.shape[1])
        g = weight.grad.flatten(1)
        dg, state['kfe_gy'] = torch.linalg.eigh(g @ g.t())
        m2 = (dg.unsqueeze(1) * d.unsqueeze(0)).abs()
        if self.sua:                      # same statistics for every spatial position of the kernel
            m2 = m2[:, :, None, None].expand_as(weight)
        state['m2'] = m2

    def _precond_sua_ra(self, weight, state):
        kfe_x, kfe_gy, m2 = state['kfe_x'], state['kfe_gy'], state['m2']
        g_kfe = torch.einsum('oihw,op,iq->pqhw', weight.grad, kfe_gy, kfe_x)
        m2.mul_(self.alpha).add_(g_kfe ** 2, alpha=1. - self.alpha)
        g_nat = g_kfe / (m2 + self.eps)
        weight.grad.copy_(torch.einsum('pqhw,op,iq->oihw', g_nat, kfe_gy, kfe_x))
# %%
precond = EKFAC(net, eps=5e-2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.004, momentum=0.9)
inputs, targets = torch.randn(3, 5, 1, 6, 6), torch.randint(0, 3, (3, 5))
# %%
for x, y in zip(inputs, targets):
    optimizer.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    precond.step()
    optimizer.step()
    print('current_lr:', optimizer.param_groups[0]['lr'], loss.item())
# %% [fixed 2]
class EKFAC(torch.optim.Optimizer):
    '''K-FAC preconditioner in the Kronecker-factored eigenbasis (SUA for convolutions)'''
    def __init__(self, net, eps, sua=True, alpha=0.75, update_freq=2):
        self.eps, self.sua, self.alpha, self.update_freq, self.iter = eps, sua, alpha, update_freq, 0
        params = []
        for mod in net.modules():
            if isinstance(mod, nn.Conv2d):
                mod.register_forward_pre_hook(self._save_input)
                params.append({'params': [mod.weight], 'mod': mod})
        super().__init__(params, {})
        self._inputs = {}

    def _save_input(self, mod, i):
        if mod.training and torch.is_grad_enabled():
            self._inputs[mod] = i[0].detach()

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            weight, mod = group['params'][0], group['mod']
            state = self.state[mod]
            if self.iter % self.update_freq == 0:
                self._compute_kfe(mod, weight, state)
            self._precond_sua_ra(weight, state)
        self.iter += 1

    def _compute_kfe(self, mod, weight, state):
        x = self._inputs[mod].transpose(0, 1).flatten(1)
        d, state['kfe_x'] = torch.linalg.eigh(x @ x.t() / x.shape[1])
        g = weight.grad.flatten(1)
        dg, state['kfe_gy'] = torch.linalg.eigh(g @ g.t())
        m2 = (dg.unsqueeze(1) * d.unsqueeze(0)).abs()
        if self.sua:                      # same statistics for every spatial position of the kernel
            m2 = m2[:, :, None, None].expand_as(weight).clone()
        state['m2'] = m2

    def _precond_sua_ra(self, weight, state):
        kfe_x, kfe_gy, m2 = state['kfe_x'], state['kfe_gy'], state['m2']
        g_kfe = torch.einsum('oihw,op,iq->pqhw', weight.grad, kfe_gy, kfe_x)
        m2.mul_(self.alpha).add_(g_kfe ** 2, alpha=1. - self.alpha)
        g_nat = g_kfe / (m2 + self.eps)
        weight.grad.copy_(torch.einsum('pqhw,op,iq->oihw', g_nat, kfe_gy, kfe_x))
