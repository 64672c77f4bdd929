"""Agents whose joint actions are made once, ahead of the loop in which each of them is updated."""

from __future__ import annotations

from ...cells import run_cells
from ..trying import rewritten, rules

AGENTS = """
    import torch
    from torch import nn
    torch.manual_seed(0)

    class Agent:
        def __init__(self):
            self.actor, self.critic = Actor(), nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))

    class Actor(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
            self.optimizer = torch.optim.SGD(self.parameters(), lr=0.1)

        def forward(self, x):
            return self.body(x)
    agents, observed = [Agent() for _ in range(2)], torch.randn(2, 6, 3)
    """
LEARN = """
    actions = []
    for agent, x in zip(agents, observed):
        actions.append(agent.actor(x))
    joint = torch.cat(actions, dim=1)
    for agent in agents:
        loss = -agent.critic(joint).mean()
        agent.actor.optimizer.zero_grad()
        loss.backward(retain_graph=True)
        agent.actor.optimizer.step()
    """
GAN = """
    generator, critic = agents[0].actor, nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
    for x in observed:
        score = critic(generator(x)).mean()
        generator.optimizer.zero_grad()
        (-score).backward(retain_graph=True)
        generator.optimizer.step()
        optimizer.zero_grad()
        score.backward()
        optimizer.step()
    """


def test_each_backward_goes_back_to_what_its_own_step_trains() -> None:
    run = run_cells(AGENTS, LEARN)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert first.rule == "own_parameters"
    limited = "loss.backward(retain_graph=True, inputs=list(agent.actor.parameters()))"
    assert first.cells == {2: rewritten(LEARN, ("loss.backward(retain_graph=True)", limited))}


def test_what_an_optimizer_was_given_otherwise_is_asked_of_the_optimizer() -> None:
    some = AGENTS.replace("SGD(self.parameters()", "SGD(self.body.parameters()")
    run = run_cells(some, LEARN)
    assert run.diagnosis is not None
    held = 'inputs=[p for group in agent.actor.optimizer.param_groups for p in group["params"]]'
    assert held in run.diagnosis.fixes[0].cells[2]


def test_it_is_not_shown_where_a_cut_or_another_order_does_the_same() -> None:
    found = rules(AGENTS, GAN)
    assert found
    assert "own_parameters" not in found


def test_it_is_not_offered_where_the_norm_of_more_than_is_stepped_scales_the_step() -> None:
    everyone = "everyone = [p for a in agents for p in a.actor.parameters()]"
    clipped = LEARN.replace(
        "        agent.actor.optimizer.step()",
        "        nn.utils.clip_grad_norm_({}, 0.5)\n        agent.actor.optimizer.step()",
    )
    assert "own_parameters" not in rules(AGENTS, everyone, clipped.format("everyone"))
    assert "own_parameters" in rules(AGENTS, everyone, clipped.format("agent.actor.parameters()"))


def test_groups_that_an_optimizer_has_got_later_are_asked_of_it() -> None:
    cell = """
        encoder, critic = nn.Linear(3, 3), nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
        generator = nn.Linear(3, 2)
        opt_g, opt_d = torch.optim.SGD(generator.parameters(), lr=0.1), torch.optim.SGD(critic.parameters(), lr=0.1)
        opt_g.add_param_group({"params": encoder.parameters()})
        for x in observed:
            score = critic(generator(encoder(x))).mean()
            opt_d.zero_grad()
            score.backward(retain_graph=True)
            opt_d.step()
            opt_g.zero_grad()
            (-score).backward()
            opt_g.step()
        """
    run = run_cells(AGENTS, cell)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert first.gradients == "same"
    assert '.backward(inputs=[p for group in opt_g.param_groups for p in group["params"]])' in first.cells[2]
