# %% [case]
# id: trajectory-rows-unpacked
# source: pypose/pypose#344, fix pypose#373 (examples/module/mpc/cartpole.py)
# family: multi_output_view
# fails: 3
# culprit: 3:7
# saved: 1:21|1:17
# needed: 3:18
# effect: same
# observe: [losses, [v.detach().clone() for v in (length, m_cart, m_pole)]]
# note: a row of a preallocated trajectory is unpacked (views by unbind), then the next row is written; merged fix: clone the state where it is unpacked
# %%
import torch
from torch import nn, optim

torch.manual_seed(0)
T, n_state, dt, g = 5, 4, 0.1, 9.81
time = torch.arange(0, T) * dt

class CartPole(nn.Module):
    def __init__(self, dt, length, cartmass, polemass, gravity):
        super().__init__()
        self.tau = dt
        self.length, self.cartmass, self.polemass, self.gravity = length, cartmass, polemass, gravity
        self.polemassLength = self.polemass * self.length
        self.totalMass = self.cartmass + self.polemass

    def state_transition(self, state, input, t=None):
        x, xDot, theta, thetaDot = state.squeeze()
        force = input.squeeze()
        costheta = torch.cos(theta)
        sintheta = torch.sin(theta)
        temp = (force + self.polemassLength * thetaDot ** 2 * sintheta) / self.totalMass
        thetaAcc = (self.gravity * sintheta - costheta * temp) / (
            self.length * (4.0 / 3.0 - self.polemass * costheta ** 2 / self.totalMass))
        xAcc = temp - self.polemassLength * thetaAcc * costheta / self.totalMass
        _dstate = torch.stack((xDot, xAcc, thetaDot, thetaAcc))
        return (state.squeeze() + torch.mul(_dstate, self.tau)).unsqueeze(0)

    def observation(self, state, input, t=None):
        return state

    def forward(self, state, input):
        return self.state_transition(state, input), self.observation(state, input)
# %%
x_init = torch.tensor([[0, 0, torch.pi * 0.5, 0]])
u_true = torch.sin(time).unsqueeze(1).unsqueeze(0)
expert = dict(len=torch.tensor(1.5), m_cart=torch.tensor(20.), m_pole=torch.tensor(10.))

def rollout(solver, current_u):
    rows = [x_init]
    for i in range(T - 1):
        rows.append(solver(rows[-1], current_u[..., i, :])[0])
    return torch.stack(rows, dim=1)

x_true = rollout(CartPole(dt, expert['len'], expert['m_cart'], expert['m_pole'], g), u_true)
print(x_true.shape)
# %%
def get_loss(_len, _m_cart, _m_pole):
    current_x = torch.zeros(1, T, n_state)
    current_u = torch.sin(time).unsqueeze(1).unsqueeze(0)
    current_x[..., 0, :] = x_init
    agent_cartPoleSolver = CartPole(dt, _len, _m_cart, _m_pole, g)
    for i in range(T - 1):
        current_x[..., i + 1, :], _ = agent_cartPoleSolver(current_x[..., i, :], current_u[..., i, :])
    return torch.mean((x_true - current_x) ** 2)

length = torch.tensor(1.55).requires_grad_()
m_cart = torch.tensor(20.3).requires_grad_()
m_pole = torch.tensor(10.4).requires_grad_()
opt = optim.RMSprop((length, m_cart, m_pole), lr=1e-2)
losses = []
for i in range(3):
    traj_loss = get_loss(length, m_cart, m_pole)
    opt.zero_grad()
    traj_loss.backward()
    opt.step()
    losses.append(traj_loss.item())
    print('{:04d}: traj_loss: {:.8f}'.format(i, traj_loss.item()))
# %% [fixed 1]
import torch
from torch import nn, optim

torch.manual_seed(0)
T, n_state, dt, g = 5, 4, 0.1, 9.81
time = torch.arange(0, T) * dt

class CartPole(nn.Module):
    def __init__(self, dt, length, cartmass, polemass, gravity):
        super().__init__()
        self.tau = dt
        self.length, self.cartmass, self.polemass, self.gravity = length, cartmass, polemass, gravity
        self.polemassLength = self.polemass * self.length
        self.totalMass = self.cartmass + self.polemass

    def state_transition(self, state, input, t=None):
        x, xDot, theta, thetaDot = state.clone().squeeze()
        force = input.squeeze()
        costheta = torch.cos(theta)
        sintheta = torch.sin(theta)
        temp = (force + self.polemassLength * thetaDot ** 2 * sintheta) / self.totalMass
        thetaAcc = (self.gravity * sintheta - costheta * temp) / (
            self.length * (4.0 / 3.0 - self.polemass * costheta ** 2 / self.totalMass))
        xAcc = temp - self.polemassLength * thetaAcc * costheta / self.totalMass
        _dstate = torch.stack((xDot, xAcc, thetaDot, thetaAcc))
        return (state.squeeze() + torch.mul(_dstate, self.tau)).unsqueeze(0)

    def observation(self, state, input, t=None):
        return state

    def forward(self, state, input):
        return self.state_transition(state, input), self.observation(state, input)
