# %% [case]
# id: seir-solver-positive-rates
# source: https://github.com/Rose-STL-Lab/torchTS/pull/134 (ODESolver, "SEIR model with ODESolver" notebook; the second-backward question in the thread)
# family: second_backward
# fails: 4
# culprit: 2:8|2:13|4:4
# saved: -
# needed: 4:4
# effect: same
# observe: [p.detach().clone() for p in model.parameters()] + [loss.item()]
# note: The thread does not say what was shared between the epochs; here it is the dict of positive rates, exp of the parameters, computed once in __init__. Fix: a property, so that the rates are computed from the present parameters. The += in the Runge-Kutta step are harmless.
# %%
import torch
from torch import nn
torch.manual_seed(134)

def S_to_E(v, c): return c['beta'] * v['S'] * v['I']

ode = {
    'S': lambda v, c: -S_to_E(v, c),
    'E': lambda v, c: S_to_E(v, c) - c['sigma'] * v['E'],
    'I': lambda v, c: c['sigma'] * v['E'] - c['gamma'] * v['I'],
    'R': lambda v, c: c['gamma'] * v['I'],
}
# %%
class ODESolver(nn.Module):
    def __init__(self, ode, init_vars, init_coeffs, dt, outvar=None):
        super().__init__()
        for name, value in init_coeffs.items():
            self.register_parameter(name, nn.Parameter(torch.tensor(value).log()))
        self.ode, self.var_names, self.dt = ode, list(ode), dt
        self.init_vars = {name: torch.tensor(value) for name, value in init_vars.items()}
        self.coeffs = {name: param.exp() for name, param in self.named_parameters()}   # rates are positive
        self.outvar = outvar or self.var_names

    def runge_kutta_4_step(self, prev):
        def shifted(k, h):
            return {v: prev[v] + self.ode[v](k, self.coeffs) * h * self.dt for v in self.var_names}
        k_1 = prev
        k_2 = shifted(k_1, 0.5)
        k_3 = shifted(k_2, 0.5)
        k_4 = shifted(k_3, 1.0)
        pred = {}
        for v in self.var_names:
            result = self.ode[v](k_1, self.coeffs) / 6
            result += self.ode[v](k_2, self.coeffs) / 3
            result += self.ode[v](k_3, self.coeffs) / 3
            result += self.ode[v](k_4, self.coeffs) / 6
            pred[v] = prev[v] + result * self.dt
        return pred

    def forward(self, nt):
        pred = [self.init_vars]
        for n in range(nt - 1):
            pred.append(self.runge_kutta_4_step(pred[-1]))
        return torch.stack([torch.stack([p[v] for v in self.outvar]) for p in pred])
# %%
init = {'S': 0.97, 'E': 0.02, 'I': 0.01, 'R': 0.0}
with torch.no_grad():
    cases = ODESolver(ode, init, {'beta': 0.9, 'sigma': 0.4, 'gamma': 0.2}, dt=1.0, outvar=['I', 'R'])(12)
model = ODESolver(ode, init, {'beta': 0.5, 'sigma': 0.5, 'gamma': 0.5}, dt=1.0, outvar=['I', 'R'])
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
# %%
for epoch in range(6):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(12), cases)
    loss.backward()
    optimizer.step()
print({k: round(v.item(), 3) for k, v in model.coeffs.items()}, loss.item())
# %% [fixed 2]
class ODESolver(nn.Module):
    def __init__(self, ode, init_vars, init_coeffs, dt, outvar=None):
        super().__init__()
        for name, value in init_coeffs.items():
            self.register_parameter(name, nn.Parameter(torch.tensor(value).log()))
        self.ode, self.var_names, self.dt = ode, list(ode), dt
        self.init_vars = {name: torch.tensor(value) for name, value in init_vars.items()}
        self.outvar = outvar or self.var_names

    @property
    def coeffs(self):
        return {name: param.exp() for name, param in self.named_parameters()}   # rates are positive

    def runge_kutta_4_step(self, prev):
        def shifted(k, h):
            return {v: prev[v] + self.ode[v](k, self.coeffs) * h * self.dt for v in self.var_names}
        k_1 = prev
        k_2 = shifted(k_1, 0.5)
        k_3 = shifted(k_2, 0.5)
        k_4 = shifted(k_3, 1.0)
        pred = {}
        for v in self.var_names:
            result = self.ode[v](k_1, self.coeffs) / 6
            result += self.ode[v](k_2, self.coeffs) / 3
            result += self.ode[v](k_3, self.coeffs) / 3
            result += self.ode[v](k_4, self.coeffs) / 6
            pred[v] = prev[v] + result * self.dt
        return pred

    def forward(self, nt):
        pred = [self.init_vars]
        for n in range(nt - 1):
            pred.append(self.runge_kutta_4_step(pred[-1]))
        return torch.stack([torch.stack([p[v] for v in self.outvar]) for p in pred])
