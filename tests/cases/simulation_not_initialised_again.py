# %% [case]
# id: simulation-not-initialised-again
# source: https://github.com/AgentTorch/AgentTorch/issues/55
# family: second_backward
# fails: 4
# culprit: 4:10|2:15|2:20|2:25
# saved: 2:20|2:21|2:22
# needed: 4:10
# effect: same
# observe: {n: p.detach().clone() for n, p in runner.named_parameters()}
# note: the calibration loop goes on from the last state of the simulation, whose graph is freed. Fix: runner.init() at the beginning of every calibration step (the observations are the first days). (Only the code's structure is from the source; the thread itself does not report this error.)
# %%
import torch
import torch.nn as nn

torch.manual_seed(55)
N_AGENTS, DAYS = 12, 5
contacts = (torch.rand(N_AGENTS, N_AGENTS) < 0.3).float().fill_diagonal_(0)
# %%
class Runner(nn.Module):
    """a small differentiable agent model: expected infections on a contact network"""
    def __init__(self, contacts):
        super().__init__()
        self.contacts = contacts
        self.transmission = nn.Parameter(torch.tensor(-2.0))
        self.recovery = nn.Parameter(torch.tensor(-1.0))

    def init(self):
        infected = torch.zeros(len(self.contacts)); infected[0] = 1.0
        self.state = {"infected": infected, "day": 0}
        self.state_trajectory = []

    def step(self, n_steps):
        infected = self.state["infected"]
        day = self.state["day"]
        for _ in range(n_steps):
            day += 1
            # chance that none of the contacts infects
            p = torch.sigmoid(self.transmission) * infected
            safe = torch.exp(self.contacts @ torch.log1p(-0.9 * p))
            new = (1 - infected) * (1 - safe)
            infected = infected * (1 - torch.sigmoid(self.recovery)) + new
            self.state_trajectory.append(new.sum())
        self.state = {"infected": infected, "day": day}
# %%
def execute(runner, n_steps=DAYS):
    """Execute simulation and return the daily infections"""
    runner.step(n_steps)
    return torch.stack(runner.state_trajectory[-n_steps:])

daily_infected = torch.tensor([0.9, 1.6, 2.0, 1.7, 1.1])
# %%
runner = Runner(contacts)
runner.init()
opt = torch.optim.Adam(runner.parameters(), lr=0.05)

losses = []
for it in range(4):
    labels = execute(runner)
    loss = (labels - daily_infected).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
# %% [fixed 4]
runner = Runner(contacts)
opt = torch.optim.Adam(runner.parameters(), lr=0.05)

losses = []
for it in range(4):
    runner.init()
    labels = execute(runner)
    loss = (labels - daily_infected).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
