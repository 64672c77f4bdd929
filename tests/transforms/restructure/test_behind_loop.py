from __future__ import annotations

import pytest

from ...cells import run_cells
from ..trying import fix_by, fixes, rewritten, rules

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


@pytest.mark.parametrize("clear", ["opt.zero_grad()\nloss = 0", "loss = 0\nopt.zero_grad()"])
def test_where_gradients_are_cleared_ahead_of_the_loop_one_update_was_meant(clear: str) -> None:
    loop = "for word in words:\n    loss += head(word.repeat(1, 2)).tanh().pow(2).mean()\n"
    first, *others = fixes(START, f"{clear}\n{loop}    loss.backward()\n    opt.step()\n")
    assert first.cells == {2: f"{clear}\n{loop}loss.backward()\nopt.step()"}
    assert first.gradients == "different" and "truncated" in {fix.gradients for fix in others}
    assert first.changes == ("1 update instead of 3",)


def test_where_each_term_has_a_name_it_goes_back_by_itself() -> None:
    cell = """opt.zero_grad()
total = 0
for word in words:
    loss = head(word.repeat(1, 2)).tanh().pow(2).mean()
    total += loss
    total.backward()
    opt.step()
"""
    first = fixes(START, cell)[0]
    assert "    total += loss.detach()\n    loss.backward()\n    opt.step()" in first.cells[2]


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


EPISODE = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    opt = torch.optim.Adam(net.parameters())
    data = [net(x).softmax(0)[0] for x in torch.randn(5, 4)]
    """


@pytest.mark.parametrize("cleared", [False, True])
def test_losses_of_one_forward_are_stepped_for_once(cleared: bool) -> None:
    clear = "    opt.zero_grad()\n" if cleared else ""
    cell = f"for prob in data:\n    loss = -prob.log()\n{clear}    loss.backward()\n    opt.step()\n"
    fix = fix_by("restructure", EPISODE, cell)
    ahead = "opt.zero_grad()\n" if cleared else ""
    assert fix.cells == {2: f"{ahead}for prob in data:\n    loss = -prob.log()\n    loss.backward()\nopt.step()"}
    assert fix.gradients == "different"


def test_a_step_that_is_the_iterations_own_stays_in_it() -> None:
    start = EPISODE.replace("data =", "opts = [torch.optim.SGD(net.parameters(), 0.1) for _ in range(5)]\n    data =")
    cell = "for prob, o in zip(data, opts):\n    loss = -prob.log()\n    loss.backward()\n    o.step()\n"
    assert "restructure" not in rules(start, cell)


SEVERAL_OPTIMIZERS = """
    heads = nn.ModuleDict({name: nn.Linear(4, 1) for name in "ab"})
    body = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 4))
    shared = torch.optim.SGD(body.parameters(), lr=0.1)
    own = {name: torch.optim.SGD(head.parameters(), lr=0.1) for name, head in heads.items()}
    """
EACH_TASK = """
    features = body(words)
    losses = {name: head(features).square().mean() for name, head in heads.items()}
    shared.zero_grad()
    for name in heads:
        own[name].zero_grad()
        losses[name].backward(retain_graph=True)
        own[name].step()
        shared.step()
    """


def test_the_step_of_what_all_iterations_share_goes_behind_the_loop_alone() -> None:
    first, *_ = fixes(START, SEVERAL_OPTIMIZERS, EACH_TASK)
    assert first.cells == {3: rewritten(EACH_TASK, ("    shared.step()", "shared.step()"))}


BY_HAND = """
    class Descent:
        def __init__(self, params):
            self.params = list(params)
        def clear(self):
            for p in self.params:
                p.grad = None
        @torch.no_grad()
        def move(self):
            for p in self.params:
                if p.grad is not None:
                    p.sub_(0.1 * p.grad)

    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2))
    descent = Descent(net.parameters())
    """
LOSSES = """
    out = net(words.view(3, 2))
    descent.clear()
    for loss in (out.mean(), out.square().mean()):
        loss.backward(retain_graph=True)
        descent.move()
    """


def test_a_step_by_hand_waits_behind_the_loop_over_losses_of_one_forward() -> None:
    fix = fix_by("restructure", START, BY_HAND, LOSSES)
    assert fix.cells == {3: rewritten(LOSSES, ("    descent.move()", "descent.move()"))}


def test_a_step_by_hand_stays_where_gradients_are_cleared_in_each_iteration() -> None:
    cleared_each_time = LOSSES.replace("    descent.clear()\n", "").replace(
        "        loss.b", "        descent.clear()\n        loss.b"
    )
    assert "restructure" not in rules(START, BY_HAND, cleared_each_time)


def test_a_step_stays_where_each_iteration_goes_back_from_the_same_loss() -> None:
    again = """
        out = net(words.view(3, 2))
        loss = out.square().mean()
        for _ in range(3):
            loss.backward(retain_graph=True)
            descent.move()
        """
    assert "restructure" not in rules(START, BY_HAND, again)
