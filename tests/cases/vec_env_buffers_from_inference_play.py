# %% [case]
# id: vec-env-buffers-from-inference-play
# source: https://github.com/isaac-sim/IsaacLab-Arena/pull/96 (reset on termination, in-place update to inference tensor outside InferenceMode)
# family: inference
# fails: 4
# culprit: 3:6 | 1:31
# saved: -
# needed: 1:20
# effect: same
# observe: [p.detach().clone() for p in actor.parameters()] + [env.obs_buf.clone()]
# note: play() steps the vectorised env under inference_mode, so env.obs_buf is left behind as an inference tensor; in training the partial reset writes rows of it. Human fix: play under no_grad.
# %%
import torch
from torch import nn
torch.manual_seed(96)

class ReachVecEnv:
    """num_envs point masses, all state in torch (as in Isaac Lab)"""
    def __init__(self, num_envs=6, max_episode_length=5):
        self.num_envs, self.max_episode_length = num_envs, max_episode_length
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.long)
        self.goal = torch.zeros(num_envs, 2)
        self.obs_buf = torch.zeros(num_envs, 4)
        self.reset()

    def reset(self):
        self._reset_idx(torch.arange(self.num_envs))
        return self.obs_buf

    def _reset_idx(self, env_ids):
        self.goal[env_ids] = torch.rand(len(env_ids), 2) * 2 - 1
        self.obs_buf[env_ids, :2] = 0.0
        self.obs_buf[env_ids, 2:] = self.goal[env_ids]
        self.episode_length_buf[env_ids] = 0

    def step(self, actions):
        self.episode_length_buf += 1
        pos = self.obs_buf[:, :2] + 0.2 * actions.clamp(-1, 1)
        dist = (pos - self.goal).norm(dim=1)
        terminated = dist < 0.05
        time_out = self.episode_length_buf >= self.max_episode_length
        rew_buf = -dist + 1.0 * terminated
        self.obs_buf = torch.cat([pos, self.goal], dim=1)
        reset_buf = terminated | time_out
        if len(env_ids := reset_buf.nonzero(as_tuple=False).squeeze(-1)) > 0:
            self._reset_idx(env_ids)
        return self.obs_buf.clone(), rew_buf, reset_buf
# %%
actor = nn.Sequential(nn.Linear(4, 16), nn.ELU(), nn.Linear(16, 2))
log_std = nn.Parameter(torch.full((2,), -0.5))
optimizer = torch.optim.Adam([*actor.parameters(), log_std], lr=1e-2)
env = ReachVecEnv()
# %%
def play(env, policy, num_steps=7):
    """mean reward of the deterministic policy"""
    policy.eval()
    obs = env.reset()
    rewards = []
    with torch.inference_mode():
        for _ in range(num_steps):
            obs, rew, _ = env.step(policy(obs))
            rewards.append(rew.mean().item())
    return sum(rewards) / num_steps

print("mean reward before training:", play(env, actor))
# %%
actor.train()
for it in range(3):
    # REINFORCE with the batch mean as baseline
    log_probs, rewards = [], []
    obs = env.reset()
    for _ in range(env.max_episode_length):
        dist = torch.distributions.Normal(actor(obs), log_std.exp())
        actions = dist.sample()
        log_probs.append(dist.log_prob(actions).sum(-1))
        with torch.no_grad():
            obs, rew, done = env.step(actions)
        rewards.append(rew)
    returns = torch.stack(rewards).flip(0).cumsum(0).flip(0)
    loss = -(torch.stack(log_probs) * (returns - returns.mean())).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(it, loss.item(), returns[0].mean().item())
# %% [fixed 3]
def play(env, policy, num_steps=7):
    """mean reward of the deterministic policy"""
    policy.eval()
    obs = env.reset()
    rewards = []
    with torch.no_grad():
        for _ in range(num_steps):
            obs, rew, _ = env.step(policy(obs))
            rewards.append(rew.mean().item())
    return sum(rewards) / num_steps

print("mean reward before training:", play(env, actor))
