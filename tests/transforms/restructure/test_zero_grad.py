"""Gradients begin anew in each iteration, by one line, at the place of each step that goes by sums."""

from __future__ import annotations

import textwrap

import pytest

from ...cells import new_shell, run_in
from ..trying import clean

START = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    x, y = torch.randn(8, 3), torch.randn(8, 1)
    net = nn.Linear(3, 1)
    w, b = torch.randn(3, 1, requires_grad=True), torch.zeros(1, requires_grad=True)
    opt = torch.optim.SGD(net.parameters(), 0.1)
    """
LOSS = "loss = ((net(x) - y) ** 2).mean()\n"


def loop(body: str) -> str:
    return "for _ in range(4):\n" + textwrap.indent(body, "    ")


def first_fix(*cells: str) -> dict[int, str]:
    """The cells of the first fix, by the first line that the check is not."""
    run = run_in(new_shell(), [clean(START), *cells[:-1], "%%autograd_check\n" + cells[-1]])
    assert run.diagnosis is not None and run.diagnosis.fixes
    assert run.diagnosis.fixes[0].rule == "zero_grad"
    return {n: text.removeprefix("%%autograd_check\n") + "\n" for n, text in run.diagnosis.fixes[0].cells.items()}


BACK = LOSS + "loss.backward()\n"


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        pytest.param(
            loop(BACK + "opt.step()\n"), loop(LOSS + "opt.zero_grad()\nloss.backward()\nopt.step()\n"), id="ahead of the backward"
        ),
        pytest.param(
            "opt.zero_grad()\n" + loop(BACK + "opt.step()\n"),
            "opt.zero_grad()\n" + loop(LOSS + "opt.zero_grad()\nloss.backward()\nopt.step()\n"),
            id="it is called once, ahead of the loop",
        ),
        pytest.param(
            loop("def closure():\n" + textwrap.indent(BACK + "return loss\n", "    ") + "opt.step(closure)\n"),
            loop("def closure():\n" + textwrap.indent(LOSS + "opt.zero_grad()\nloss.backward()\nreturn loss\n", "    ") + "opt.step(closure)\n"),
            id="in a closure",
        ),
        pytest.param(
            "other = torch.optim.SGD([w], 0.1)\n" + loop("loss = ((net(x) + x @ w - y) ** 2).mean()\nloss.backward()\nopt.step()\nother.step()\n"),
            "other = torch.optim.SGD([w], 0.1)\n"
            + loop("loss = ((net(x) + x @ w - y) ** 2).mean()\nopt.zero_grad()\nother.zero_grad()\nloss.backward()\nopt.step()\nother.step()\n"),
            id="for each of two optimizers",
        ),
        pytest.param(
            loop("loss = ((x @ w + b - y) ** 2).mean()\nloss.backward()\nw.data -= 0.1 * w.grad\nb.data -= 0.1 * b.grad\n"),
            loop("loss = ((x @ w + b - y) ** 2).mean()\nloss.backward()\nw.data -= 0.1 * w.grad\nw.grad = None\nb.data -= 0.1 * b.grad\nb.grad = None\n"),
            id="by hand, behind each update",
        ),
        pytest.param(
            loop(BACK + "with torch.no_grad():\n    for p in net.parameters():\n        p -= 0.1 * p.grad\n"),
            loop(BACK + "with torch.no_grad():\n    for p in net.parameters():\n        p -= 0.1 * p.grad\n        p.grad = None\n"),
            id="by hand, in a loop over parameters",
        ),
        pytest.param(
            "ws = [w, b]\n" + loop("loss = ((x @ ws[0] + ws[1] - y) ** 2).mean()\nloss.backward()\nfor i in range(2):\n    ws[i].data -= 0.1 * ws[i].grad\n"),
            "ws = [w, b]\n" + loop("loss = ((x @ ws[0] + ws[1] - y) ** 2).mean()\nloss.backward()\nfor i in range(2):\n    ws[i].data -= 0.1 * ws[i].grad\n    ws[i].grad = None\n"),
            id="by hand, of the items of a list",
        ),
        pytest.param(
            loop("loss = ((x @ w - y) ** 2).mean()\nloss.backward()\nw.data -= 0.1 * w.grad\n") + "print(w.grad.norm())\n",
            loop("loss = ((x @ w - y) ** 2).mean()\nw.grad = None\nloss.backward()\nw.data -= 0.1 * w.grad\n") + "print(w.grad.norm())\n",
            id="by hand, ahead of the backward, where the last one is read behind",
        ),
        pytest.param(
            loop(BACK + "for p in net.parameters():\n    p.grad = None\nopt.step()\n"),
            loop(LOSS + "for p in net.parameters():\n    p.grad = None\nloss.backward()\nopt.step()\n"),
            id="they are set to None in a loop behind the backward",
        ),
        pytest.param(
            loop(LOSS + "penalty = net(x).abs().mean()\nloss.backward()\npenalty.backward()\nopt.step()\n"),
            loop(LOSS + "penalty = net(x).abs().mean()\nopt.zero_grad()\nloss.backward()\npenalty.backward()\nopt.step()\n"),
            id="ahead of the first of two backwards",
        ),
        pytest.param(
            loop("for rows in x.split(4):\n    net(rows).square().mean().backward()\nopt.step()\n"),
            loop("opt.zero_grad()\nfor rows in x.split(4):\n    net(rows).square().mean().backward()\nopt.step()\n"),
            id="ahead of a loop of backwards",
        ),
        pytest.param(
            "for i in range(8):\n    " + LOSS + "    loss.backward()\n    if i % 2:\n        opt.step()\n",
            "for i in range(8):\n    " + LOSS + "    loss.backward()\n    if i % 2:\n        opt.step()\n        opt.zero_grad()\n",
            id="behind a step that some backwards have",
        ),
        pytest.param(
            "head = nn.Linear(1, 1)\nopts = [opt, torch.optim.SGD(head.parameters(), 0.1)]\n"
            + loop("loss = head(net(x)).square().mean()\nloss.backward()\n[o.step() for o in opts]\n"),
            "head = nn.Linear(1, 1)\nopts = [opt, torch.optim.SGD(head.parameters(), 0.1)]\n"
            + loop("loss = head(net(x)).square().mean()\n[o.zero_grad() for o in opts]\nloss.backward()\n[o.step() for o in opts]\n"),
            id="for each of a list of optimizers",
        ),
        pytest.param(
            "judge = nn.Linear(1, 1)\nother = torch.optim.SGD(judge.parameters(), 0.1)\n"
            + loop("made = net(x)\njudge(made.detach()).square().mean().backward()\nother.step()\nopt.zero_grad()\n(-judge(made).mean()).backward()\nopt.step()\n"),
            "judge = nn.Linear(1, 1)\nother = torch.optim.SGD(judge.parameters(), 0.1)\n"
            + loop("made = net(x)\nother.zero_grad()\njudge(made.detach()).square().mean().backward()\nother.step()\nopt.zero_grad()\n(-judge(made).mean()).backward()\nopt.step()\n"),
            id="ahead of its own backward, where that of another step has added to its gradients",
        ),
        pytest.param(
            loop("loss = ((x @ w - y) ** 2).mean()\nloss.backward()\nw.data -= 0.1 * w.grad\nprint(w.grad.norm())\n"),
            loop("loss = ((x @ w - y) ** 2).mean()\nloss.backward()\nw.data -= 0.1 * w.grad\nprint(w.grad.norm())\nw.grad = None\n"),
            id="by hand, behind what else reads it",
        ),
        pytest.param(
            loop(BACK + "opt.zero_grad()\nopt.step()\n"), loop(LOSS + "opt.zero_grad()\nloss.backward()\nopt.step()\n"), id="it is called behind the backward"
        ),
        pytest.param(
            "for i in range(8):\n    opt.zero_grad()\n    " + LOSS + "    loss.backward()\n    if i % 4 == 3:\n        opt.step()\n",
            "for i in range(8):\n    " + LOSS + "    loss.backward()\n    if i % 4 == 3:\n        opt.step()\n        opt.zero_grad()\n",
            id="it is called more often than the step",
        ),
        pytest.param(
            loop("opt.zero_grad()\n" + BACK + "print(loss.item())\n"),
            loop("opt.zero_grad()\n" + BACK + "opt.step()\nprint(loss.item())\n"),
            id="nothing steps",
        ),
    ],
)  # fmt: skip
def test_it_is_called(cell: str, expected: str) -> None:
    assert first_fix(cell) == {2: expected}


def test_it_is_called_behind_a_step_that_a_function_makes() -> None:
    made = "def update():\n    nn.utils.clip_grad_norm_(net.parameters(), 1.0)\n    opt.step()\n"
    assert first_fix(made, loop(BACK + "update()\n")) == {2: made + "    opt.zero_grad()\n"}


def test_it_is_called_behind_the_step_of_a_function_whose_caller_goes_back() -> None:
    made = "def update():\n    opt.zero_grad()\n    opt.step()\n"
    moved = "def update():\n    opt.step()\n    opt.zero_grad()\n"
    assert first_fix(made, loop(BACK + "update()\n")) == {2: moved}


def test_the_optimizer_of_a_scaler_is_cleared() -> None:
    cell = "scaler = torch.amp.GradScaler('cpu', init_scale=4.0)\n" + loop(
        LOSS + "scaler.scale(loss).backward()\nscaler.step(opt)\nscaler.update()\n"
    )
    assert first_fix(cell) == {
        2: cell.replace("    scaler.scale", "    opt.zero_grad()\n    scaler.scale"),
    }


def test_a_fix_is_accepted_and_the_cell_is_healthy() -> None:
    shell = new_shell()
    run = run_in(shell, [clean(START), "%%autograd_check\n" + loop(BACK + "opt.step()\n"), "%autograd_fix"])
    assert run.error is None
    again = run_in(shell, ["%%autograd_check\n" + loop(LOSS + "opt.zero_grad()\nloss.backward()\nopt.step()\n")])
    assert "nothing found" in again.output


def test_a_step_is_made_by_the_optimizer_that_an_object_holds() -> None:
    trainer = clean("""
        class Trainer:
            def __init__(self):
                self.opt = opt
            def fit(self):
                for _ in range(4):
                    self.opt.zero_grad()
                    loss = net(x).square().mean()
                    loss.backward()
        """)
    assert first_fix(trainer, "Trainer().fit()\n") == {
        2: trainer.replace("loss.backward()\n", "loss.backward()\n            self.opt.step()\n")
    }
