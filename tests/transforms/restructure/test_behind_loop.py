from __future__ import annotations

import ast

import pytest

from inplace_magic.source.document import CellSource
from inplace_magic.source.editor import Code
from inplace_magic.transforms.analysis.meetings import may_leave

from ...cells import run_cells
from ..trying import fix_by, rewritten

START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    cell, head = nn.GRUCell(2, 4), nn.Linear(4, 2)
    opt = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.1)
    words = torch.randn(3, 1, 2)
    """
ONE_UPDATE = """
    opt.zero_grad()
    h, loss = torch.zeros(1, 4), 0
    for word in words:
        h = cell(word, h)
        loss += (head(h) - word).pow(2).mean()
        loss.backward()
    opt.step()
    """
MANY_UPDATES = """
    loss = 0
    for word in words:
        loss += (head(word.repeat(1, 2)) - word).tanh().pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    """


def test_the_backward_of_one_update_goes_behind_the_loop_that_sums_its_loss_up() -> None:
    run = run_cells(START, ONE_UPDATE)
    assert run.diagnosis is not None
    fix = run.diagnosis.fixes[0]
    assert fix.cells == {
        2: rewritten(ONE_UPDATE, ("    loss.backward()\n", ""), ("opt.step()", "loss.backward()\nopt.step()"))
    }
    assert fix.gradients == "different", "what was summed first would have counted three times"
    assert fix.changes == ()


def test_where_each_iteration_is_an_update_a_cut_comes_first() -> None:
    run = run_cells(START, MANY_UPDATES)
    assert run.diagnosis is not None
    assert [fix.gradients for fix in run.diagnosis.fixes[:2]] == ["truncated", "different"]
    behind = fix_by("restructure", START, MANY_UPDATES)
    assert behind.cells[2].endswith("\nopt.zero_grad()\nloss.backward()\nopt.step()")


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(
            """
            h = torch.zeros(1, 4)
            for word in words:
                h = cell(word, h)
                head(h).pow(2).mean().backward()
            """,
            id="nothing is summed up",
        ),
        pytest.param(
            """
            loss = 0
            for word in words:
                loss += head(cell(word)).pow(2).mean()
                loss.backward()
                print(loss.item())
            """,
            id="something is done after the backward",
        ),
    ],
)
def test_is_not_proposed(cell: str) -> None:
    run = run_cells(START, cell)
    assert run.diagnosis is not None
    assert "restructure" not in [fix.rule for fix in run.diagnosis.fixes]


HANDED_ON = """
    def judge(word, before):
        now = head(cell(word, torch.zeros(1, 4))).tanh()
        return now.detach(), now, None if before is None else (before - now.detach()).pow(2).mean()

    before = None
    for word in words:
        told, before, loss = judge(word, before)
        if loss is None:
            continue
        opt.zero_grad()
        loss.backward()
        opt.step()
    """


def test_where_a_cut_leaves_nothing_to_train_the_losses_are_collected_for_one_update() -> None:
    fix = fix_by("restructure", START, HANDED_ON)
    assert fix.cells == {
        2: rewritten(
            HANDED_ON,
            ("for word in words:", "losses = []\nfor word in words:"),
            (
                "    opt.zero_grad()\n    loss.backward()\n    opt.step()",
                "    losses.append(loss)\n\nopt.zero_grad()\nsum(losses).backward()\nopt.step()",
            ),
        )
    }
    assert fix.gradients == "different"


@pytest.mark.parametrize(
    ("first", "update"),
    [
        pytest.param("opt = make(word)", "opt.step()", id="an optimizer of its own"),
        pytest.param("kept = [p for p in cell.parameters()]", "nn.utils.clip_grad_norm_(kept, 1.0)\n    opt.step()", id="what is clipped"),
        pytest.param("self.opt = make(word)", "self.opt.step()", id="an attribute"),
        pytest.param("for opt in make(word): opt.zero_grad()", "opt.step()", id="a name that an inner loop leaves"),
    ],
)  # fmt: skip
def test_what_reads_a_name_of_its_iteration_stays_in_the_loop(first: str, update: str) -> None:
    def moved(first: str) -> bool:
        text = f"for word in words:\n    {first}\n    loss = f(word)\n    loss.backward()\n    {update}\n"
        code = Code(CellSource(1, text))
        loop = code.tree.body[0]
        assert isinstance(loop, ast.For)
        return may_leave(loop, loop.body[2:], loop.body[2])

    assert moved("pass") and not moved(first)


def test_an_optimizer_that_is_one_of_those_the_loop_goes_through_stays_in_it() -> None:
    loop = Code(CellSource(1, "for net, opt in nets:\n    net(x).backward()\n    opt.step()\n")).tree.body[0]
    assert isinstance(loop, ast.For) and not may_leave(loop, loop.body, loop.body[0])


TASKS = """
    def learn(task, state):
        opt = torch.optim.SGD([task], lr=0.1)
        for _ in range(2):
            state["h"] = torch.tanh(head(cell(task, state["h"])).repeat(1, 2))
            loss = state["h"].pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    """


def test_each_optimizer_steps_that_a_loop_makes() -> None:
    cell = "state = {'h': torch.zeros(1, 4)}\nfor word in words:\n    learn(word.clone().requires_grad_(), state)"
    run = run_cells(START, TASKS, cell)
    assert run.diagnosis is not None
    assert [fix.rule for fix in run.diagnosis.fixes][:1] == ["detach"]
