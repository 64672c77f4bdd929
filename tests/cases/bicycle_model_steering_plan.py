# %% [case]
# id: bicycle-model-steering-plan
# source: https://github.com/MCZhi/DIPP/issues/21 (bicycle_model in planner.py; here stepped, with the state's columns updated in place)
# family: modified
# fails: 4
# culprit: 2:12|2:13|2:14|2:15
# saved: 2:13|2:14|2:15
# needed: 4:6
# effect: same
# observe: [controls.detach().clone(), controls.grad.clone(), torch.stack(costs)]
# note: v and theta are views of the state's columns, saved by the products and by cos/sin; every later write into the state changes their version. Fix: new x, y, theta, v (each from the already updated speed and heading) and stack.
# %%
import torch
torch.manual_seed(21)
DT, WHEELBASE, HORIZON = 0.1, 3.089, 6
# %%
class BicycleModel:
    def __init__(self, dt=DT, L=WHEELBASE):
        self.dt, self.L = dt, L

    def step(self, state, control):
        """state: [B, 4] x, y, heading, speed; control: [B, 2] acceleration, steering"""
        a, delta = control[:, 0], control[:, 1]
        theta = state[:, 2]
        v = state[:, 3]

        # speed first, then heading, then position with both
        state[:, 3] += a * self.dt
        state[:, 2] += v * torch.tan(delta) / self.L * self.dt
        state[:, 0] += v * torch.cos(theta) * self.dt
        state[:, 1] += v * torch.sin(theta) * self.dt
        return state

    def rollout(self, state, controls):
        traj = []
        state = state.clone()
        for t in range(controls.size(1)):
            state = self.step(state, controls[:, t])
            traj.append(state.clone())
        return torch.stack(traj, dim=1)
# %%
current_state = torch.tensor([[0., 0., 0., 4.], [1., -1., 0.2, 3.]])
ref_line = torch.stack([torch.linspace(0.4, 2.4, HORIZON), torch.linspace(0., 0.4, HORIZON)], -1)
controls = torch.zeros(2, HORIZON, 2, requires_grad=True)
planner = torch.optim.SGD([controls], lr=0.05)
# %%
costs = []
for it in range(4):
    traj = BicycleModel().rollout(current_state, controls)
    cost = (traj[..., :2] - ref_line).pow(2).sum(-1).mean() + 0.01 * controls.pow(2).mean()
    planner.zero_grad()
    cost.backward()
    planner.step()
    costs.append(cost.detach())
print(costs)
# %% [fixed 2]
class BicycleModel:
    def __init__(self, dt=DT, L=WHEELBASE):
        self.dt, self.L = dt, L

    def step(self, state, control):
        """state: [B, 4] x, y, heading, speed; control: [B, 2] acceleration, steering"""
        a, delta = control[:, 0], control[:, 1]
        x, y, theta, v = state[:, 0], state[:, 1], state[:, 2], state[:, 3]

        # speed first, then heading, then position with both
        v = v + a * self.dt
        theta = theta + v * torch.tan(delta) / self.L * self.dt
        x = x + v * torch.cos(theta) * self.dt
        y = y + v * torch.sin(theta) * self.dt
        return torch.stack([x, y, theta, v], dim=1)

    def rollout(self, state, controls):
        traj = []
        state = state.clone()
        for t in range(controls.size(1)):
            state = self.step(state, controls[:, t])
            traj.append(state.clone())
        return torch.stack(traj, dim=1)
