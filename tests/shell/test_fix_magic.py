"""%autograd_fix: what it refuses, what it changes, and that a trained model is kept."""

from __future__ import annotations

import pytest

from tests.cells import run_cells, run_in

SETUP = "import torch\nw = torch.ones(3, requires_grad=True)"
BODY = "x = w.exp()\nx += 1\nx.sum().backward()"
MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        h = torch.sigmoid(self.lin(x))
        h += 1
        return self.act(torch.tanh(h))
"""


@pytest.mark.parametrize(
    ("line", "says"),
    [
        pytest.param("%autograd_fix", "There is no report yet", id="before any report"),
        pytest.param("%autograd_fix --diagnosis nope", "another session", id="a report of another session"),
        pytest.param("%autograd_fix --nonsense", "unrecognized arguments", id="an unknown option"),
    ],
)
def test_wrong_use_is_told_in_one_line_with_the_remedy(line: str, says: str) -> None:
    done = run_cells(line)
    assert says in done.output and "Traceback" not in done.output


@pytest.mark.parametrize("number", ["0", "-1", "99"])
def test_a_fix_that_is_not_there(number: str) -> None:
    done = run_cells(SETUP, BODY)
    refused = run_in(done.shell, [f"%autograd_fix {number}"])
    assert "there is no fix" in refused.output or "unrecognized" in refused.output


def test_accepting_hands_over_the_rewritten_cell_and_runs_nothing() -> None:
    done = run_cells(SETUP, BODY)
    accepted = run_in(done.shell, ["%autograd_fix"])
    assert accepted.error is None
    assert done.shell.rl_next_input == "x = w.exp()\nx = x + 1\nx.sum().backward()"
    assert run_in(done.shell, ["assert w.grad is None"]).error is None


def test_accepting_and_running() -> None:
    done = run_cells(SETUP, BODY)
    assert (
        run_in(done.shell, ["%autograd_fix --run", "assert torch.allclose(w.grad, torch.ones(3).exp())"]).error is None
    )


def test_the_error_of_the_accepted_cell_is_let_through() -> None:
    done = run_cells(SETUP, BODY)
    run_in(done.shell, ["del w"])
    failed = run_in(done.shell, ["%autograd_fix --run"])
    assert isinstance(failed.error, NameError)


def test_a_model_in_another_cell_is_fixed_where_it_lives_and_keeps_its_weights() -> None:
    done = run_cells(MODEL, "net = Net()\nweight = net.lin.weight\nbefore = weight.detach().clone()")
    failed = run_in(done.shell, ["net(torch.randn(2, 3)).sum().backward()"])
    assert failed.diagnosis is not None
    fix = failed.diagnosis.fixes[0]
    assert fix.verified and 1 in fix.cells
    accepted = run_in(done.shell, ["%autograd_fix --run"])
    assert accepted.error is None
    kept = "assert net.lin.weight is weight and torch.equal(before, weight) and weight.grad is not None"
    assert run_in(done.shell, [kept]).error is None


def test_live_changes_can_be_taken_back() -> None:
    done = run_cells(MODEL, "net = Net()\ncode = Net.forward.__code__")
    failed = run_in(done.shell, ["net(torch.randn(2, 3)).sum().backward()"])
    assert failed.diagnosis is not None
    key = failed.diagnosis.id
    changed = run_in(
        done.shell,
        [f"%autograd_fix 1 --live --diagnosis {key}", "assert Net.forward.__code__ is not code or not net.act.inplace"],
    )
    assert changed.error is None
    back = run_in(
        done.shell,
        [f"%autograd_fix 1 --undo --diagnosis {key}", "assert Net.forward.__code__ is code and net.act.inplace"],
    )
    assert back.error is None


def test_braces_in_a_cell_survive() -> None:
    done = run_cells(SETUP, "name = 'w'\nx = {name: w.exp()}[name]\nx += 1\nprint(f'{name} {{}}')\nx.sum().backward()")
    assert done.diagnosis is not None
    assert "print(f'{name} {{}}')" in done.diagnosis.fixes[0].cells[2]
