"""Actor and critic on one trunk, playing a game of balance."""

from collections import namedtuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical

SavedAction = namedtuple("SavedAction", ["log_prob", "value"])


class Game:
    """A pole that leans further by itself; the action pushes it to one side or the other."""

    def reset(self) -> torch.Tensor:
        self.state = torch.rand(4) * 0.1
        return self.state.clone()

    def step(self, action: int) -> tuple:
        self.state = self.state * 1.1 + (0.05 if action else -0.05)
        return self.state.clone(), 1.0, bool(self.state.abs().max() > 1)


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.affine = nn.Linear(4, 16)
        self.action_head = nn.Linear(16, 2)
        self.value_head = nn.Linear(16, 1)
        self.saved_actions: list = []
        self.rewards: list = []

    def forward(self, x: torch.Tensor) -> tuple:
        x = F.relu(self.affine(x))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x)


def select_action(model: Policy, state: torch.Tensor) -> int:
    probabilities, value = model(state)
    chosen = Categorical(probabilities)
    action = chosen.sample()
    model.saved_actions.append(SavedAction(chosen.log_prob(action), value))
    return action.item()


def finish_episode(model: Policy, optimizer: torch.optim.Optimizer) -> None:
    total, returns = 0.0, []
    for reward in reversed(model.rewards):
        total = reward + 0.99 * total
        returns.insert(0, total)
    goals = torch.tensor(returns)
    goals = (goals - goals.mean()) / (goals.std() + 1e-6)
    policy_losses, value_losses = [], []
    for (log_prob, value), goal in zip(model.saved_actions, goals):
        advantage = goal - value.item()
        policy_losses.append(-log_prob * advantage)
        value_losses.append(F.smooth_l1_loss(value, goal.view(1)))
    optimizer.zero_grad()
    loss = torch.stack(policy_losses).sum() + torch.stack(value_losses).sum()
    loss.backward()
    optimizer.step()
    del model.rewards[:]
    del model.saved_actions[:]


def main() -> None:
    torch.manual_seed(5)
    model, game = Policy(), Game()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
    for episode in range(3):
        state = game.reset()
        for _ in range(12):
            state, reward, done = game.step(select_action(model, state))
            model.rewards.append(reward)
            if done:
                break
        print(f"episode {episode} length {len(model.rewards)}")
        finish_episode(model, optimizer)


if __name__ == "__main__":
    main()
