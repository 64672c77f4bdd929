"""A tensor that a write reads as its own operand: the line is known, and what keeps the value keeps the gradient."""

from __future__ import annotations

import pytest
import torch

from .cells import run_cells

START = "import torch\ntorch.manual_seed(0)\nw = torch.rand(3, 4, requires_grad=True)\n"


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("y *= y", id="augmented"),
        pytest.param("y.mul_(y)", id="method"),
        pytest.param("y[:, :2] *= y[:, :2]", id="two views of one stretch"),
        pytest.param("y.addcmul_(y, y, value=0.1)", id="two operands"),
        pytest.param("y.pow_(y)", id="what is raised to itself"),
    ],
)
def test_the_line_is_named_and_the_first_fix_keeps_the_gradients(statement: str) -> None:
    run = run_cells(START, f"y = torch.sigmoid(w)\n{statement}\ny.sum().backward()\n")
    found = run.diagnosis
    assert found is not None and found.changed is not None and found.changed.label == "In[2]:2"
    assert found.fixes and found.fixes[0].verified and found.fixes[0].gradients == "same"
    assert run.cell("%autograd_fix --run").error is None
    gradient = run.shell.user_ns["w"].grad.clone()
    fresh = run_cells(START, f"y = torch.sigmoid(w)\ny = y.clone()\n{OUT_OF_PLACE[statement]}\ny.sum().backward()\n")
    assert fresh.error is None and gradient.allclose(fresh.shell.user_ns["w"].grad)


OUT_OF_PLACE = {
    "y *= y": "y = y * y",
    "y.mul_(y)": "y = y * y",
    "y[:, :2] *= y[:, :2]": "y = torch.cat([y[:, :2] * y[:, :2], y[:, 2:]], 1)",
    "y.addcmul_(y, y, value=0.1)": "y = y + 0.1 * y * y",
    "y.pow_(y)": "y = y**y",
}


def test_an_alias_that_keeps_its_value_is_told() -> None:
    run = run_cells(START, "y = torch.sigmoid(w)\nz = y\ny *= z\ny.sum().backward()\n")
    assert run.diagnosis is not None and run.diagnosis.changed is not None
    assert run.diagnosis.changed.label == "In[2]:3"
    assert run.diagnosis.fixes and run.diagnosis.fixes[0].changes == ("z has other values afterwards",)


def test_a_write_whose_operand_is_only_made_from_it_is_no_failure() -> None:
    assert run_cells(START, "y = w * 2\ny.mul_(torch.sigmoid(y))\ny.sum().backward()\n").error is None


MASK = """
import torch
torch.manual_seed(0)
w = torch.rand(4, requires_grad=True)
"""


@pytest.mark.parametrize(
    ("write", "right"),
    [
        pytest.param(
            "live[live] = (w > 0.4)[live]", "live[live.clone()] = (w > 0.4)[live]", id="a mask as index and target"
        ),
        pytest.param("part[1:] = part[:-1]", "part[1:] = part[:-1].clone()", id="a shift along itself"),
    ],
)
def test_every_verified_fix_of_a_write_that_reads_its_own_memory_runs(write: str, right: str) -> None:
    cell = """
        live = torch.ones(4, dtype=torch.bool)
        part = torch.arange(8.0)
        for _ in range(3):
            loss = ((w * live).square().sum() * part.sum())
            grad, = torch.autograd.grad(loss, w)
            {}
        """
    run = run_cells(MASK, cell.format(write))
    assert run.diagnosis is not None and run.diagnosis.fixes
    wanted = run_cells(MASK, cell.format(right))
    assert wanted.error is None
    for number, fix in enumerate(run.diagnosis.fixes, 1):
        again = run_cells(MASK, *([fix.cells[2]] if 2 in fix.cells else []))
        assert again.error is None, (number, fix.title)
        if fix.gradients == "same":
            assert torch.equal(again.shell.user_ns["grad"], wanted.shell.user_ns["grad"]), fix.title
