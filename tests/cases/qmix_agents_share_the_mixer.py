# %% [case]
# id: qmix-agents-share-the-mixer
# source: multi-agent Q-learning, agents updated one after the other through one mixing network
# family: modified
# fails: 3
# culprit: 3:7
# saved: 2:3
# needed: 3:6
# effect: other
# observe: [p.detach().clone() for p in mixer.parameters()]
# note: the first agent's step changes weights that the next agent's loss, built on the same mix, still needs. Fix: all backwards, then all steps.
# %%
import torch
from torch import nn
torch.manual_seed(2)
n_agents, n_obs, n_act = 2, 4, 3
agents = [nn.Sequential(nn.Linear(n_obs, 8), nn.ReLU(), nn.Linear(8, n_act)) for _ in range(n_agents)]
mixer = nn.Sequential(nn.Linear(n_agents, 6), nn.ELU(), nn.Linear(6, 1))
opts = [torch.optim.RMSprop([*a.parameters(), *mixer.parameters()], lr=5e-3) for a in agents]
# %%
def mix(obs, acts):
    qs = [a(o).gather(1, u[:, None]) for a, o, u in zip(agents, obs, acts)]
    return mixer(torch.cat(qs, 1)).squeeze(1), qs
# %%
obs, acts, reward = torch.randn(n_agents, 6, n_obs), torch.randint(0, n_act, (n_agents, 6)), torch.rand(6)
q_tot, qs = mix(obs, acts)
losses = [(q_tot - reward).pow(2).mean() + 0.01 * q.abs().mean() for q in qs]
for opt, loss in zip(opts, losses):
    opt.zero_grad()
    loss.backward(retain_graph=True)
    opt.step()
# %% [fixed 3]
obs, acts, reward = torch.randn(n_agents, 6, n_obs), torch.randint(0, n_act, (n_agents, 6)), torch.rand(6)
q_tot, qs = mix(obs, acts)
losses = [(q_tot - reward).pow(2).mean() + 0.01 * q.abs().mean() for q in qs]
for opt in opts:
    opt.zero_grad()
sum(losses).backward()
for opt in opts:
    opt.step()
