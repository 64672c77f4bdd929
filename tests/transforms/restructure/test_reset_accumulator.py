from __future__ import annotations

import pytest

from ...cells import run_cells

START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    cell, head = nn.GRUCell(2, 4), nn.Linear(4, 1)
    opt = torch.optim.Adam([*cell.parameters(), *head.parameters()])
    """
CARRIED = """
    h = torch.zeros(3, 4)
    losses = []
    for step, x in enumerate(torch.randn(8, 3, 2)):
        h = cell(x, h)
        losses.append(head(h).square().mean())
        if {test}:
            loss = sum(losses)
            opt.zero_grad()
            loss.backward()
            opt.step()
    """


@pytest.mark.parametrize(
    ("carried", "line"),
    [
        pytest.param("h", "            h, losses = h.detach(), []", id="with the state that is handed on"),
        pytest.param("h.detach()", "            losses.clear()", id="alone"),
    ],
)
def test_what_several_iterations_collect_begins_anew_where_it_is_used_up(carried: str, line: str) -> None:
    run = run_cells(START, CARRIED.format(test="(step + 1) % 4 == 0").replace("x, h)", f"x, {carried})"))
    assert run.diagnosis is not None
    assert run.diagnosis.fixes[0].cells[2].rstrip().endswith(f"opt.step()\n{line}".replace("\n        ", "\n    "))


def test_a_memory_that_asks_how_full_it_is_stays_full() -> None:
    run = run_cells(START, CARRIED.format(test="len(losses) > 3"))
    assert run.diagnosis is not None
    assert "losses.clear()" not in run.diagnosis.fixes[0].diff and "[]" not in run.diagnosis.fixes[0].diff


EPISODES = """
    policy = nn.Linear(2, 2)
    opt = torch.optim.SGD(policy.parameters(), lr=0.1)
    log_probs, rewards = [], []
    def finish():
        loss = sum(-log_prob * reward for log_prob, reward in zip(log_probs, rewards))
        opt.zero_grad()
        loss.backward()
        opt.step()
        rewards[:] = []
    """
PLAYED = """
    for episode in range(2):
        for state in torch.randn(3, 2):
            log_probs.append(policy(state).log_softmax(0)[0])
            rewards.append(1.0)
        finish()
    """


def test_a_list_of_which_a_shorter_one_leaves_out_the_newest_is_emptied_with_it() -> None:
    run = run_cells(START, EPISODES, PLAYED)
    assert run.diagnosis is not None
    first = run.diagnosis.fixes[0]
    assert (first.rule, first.title) == ("reset_accumulator", "log_probs.clear(); rewards.clear()")
