# %% [case]
# id: mpc-warm-start-shifts-plan
# source: the standard forum question ("a leaf Variable that requires grad is being used in an in-place operation") asked of an optimised input, here a gradient-based shooting MPC with a warm start
# family: leaf
# fails: 4
# culprit: 3:22
# saved: -
# needed: 3:22
# effect: same
# observe: [mpc.u.detach().clone(), torch.stack(trajectory)]
# note: the plan is an optimised leaf; the warm start copies the shifted plan into it outside of no_grad. (u = torch.cat(...) instead would take the plan away from its optimizer.) Human fix: with torch.no_grad().
# %%
import math
import torch
torch.manual_seed(0)

class Pendulum:
    """theta = 0 is upright; x = (theta, theta_dot)"""
    def __init__(self, mass=1.0, length=1.0, g=9.81, dt=0.05, max_torque=6.0):
        self.mass, self.length, self.g, self.dt, self.max_torque = mass, length, g, dt, max_torque

    def step(self, x, u):
        th, thdot = x.unbind(-1)
        torque = self.max_torque * torch.tanh(u.squeeze(-1))
        thddot = self.g / self.length * torch.sin(th) + torque / (self.mass * self.length ** 2)
        thdot = thdot + thddot * self.dt
        return torch.stack([th + thdot * self.dt, thdot], -1)
# %%
def running_cost(x, u):
    return (1 - torch.cos(x[..., 0])) * 5 + 0.1 * x[..., 1] ** 2 + 0.01 * u.pow(2).sum(-1)

def final_cost(x):
    return 20 * (1 - torch.cos(x[..., 0])) + x[..., 1] ** 2
# %%
class ShootingMPC:
    """plan by gradient descent on the open loop controls, apply the first, shift, repeat"""
    def __init__(self, model, horizon=8, iters=5, lr=0.1):
        self.model, self.horizon, self.iters = model, horizon, iters
        self.u = torch.zeros(horizon, 1, requires_grad=True)
        self.optimizer = torch.optim.Adam([self.u], lr=lr)

    def rollout(self, x):
        cost = 0.
        for u in self.u:
            cost = cost + running_cost(x, u)
            x = self.model.step(x, u)
        return cost + final_cost(x)

    def command(self, x):
        for _ in range(self.iters):
            self.optimizer.zero_grad()
            self.rollout(x).backward()
            self.optimizer.step()
        action = self.u[0].detach().clone()
        # warm start: previous plan moved by one step, last action repeated
        self.u.copy_(torch.cat([self.u[1:], self.u[-1:]]))
        return action
# %%
real_system = Pendulum(mass=1.1, length=0.95)     # a bit off
mpc = ShootingMPC(Pendulum())
x = torch.tensor([math.pi / 6, 0.])
trajectory = [x]
for t in range(6):
    u = mpc.command(x)
    x = real_system.step(x, u)
    trajectory.append(x)
print(torch.stack(trajectory))
# %% [fixed 3]
class ShootingMPC:
    """plan by gradient descent on the open loop controls, apply the first, shift, repeat"""
    def __init__(self, model, horizon=8, iters=5, lr=0.1):
        self.model, self.horizon, self.iters = model, horizon, iters
        self.u = torch.zeros(horizon, 1, requires_grad=True)
        self.optimizer = torch.optim.Adam([self.u], lr=lr)

    def rollout(self, x):
        cost = 0.
        for u in self.u:
            cost = cost + running_cost(x, u)
            x = self.model.step(x, u)
        return cost + final_cost(x)

    def command(self, x):
        for _ in range(self.iters):
            self.optimizer.zero_grad()
            self.rollout(x).backward()
            self.optimizer.step()
        action = self.u[0].detach().clone()
        # warm start: previous plan moved by one step, last action repeated
        with torch.no_grad():
            self.u.copy_(torch.cat([self.u[1:], self.u[-1:]]))
        return action
