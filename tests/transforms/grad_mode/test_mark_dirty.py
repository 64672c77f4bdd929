"""A custom Function that writes into what it is given tells autograd so."""

from __future__ import annotations

import pytest
import torch

from ...cells import run_cells
from ..trying import fixes, rules

START = """
    import torch
    torch.manual_seed(0)
    w, v = torch.ones(2, 3, requires_grad=True), torch.ones(3, requires_grad=True)
    class AddTo(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            a[0] += b
            return a
        @staticmethod
        def backward(ctx, g):
            return g, g[0]
    """
CELL = """%%autograd_check
canvas = w * 2
AddTo.apply(canvas, v)
(canvas ** 2).sum().backward()
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("return a\n", "ctx.mark_dirty(a)\n            return a\n", id="that says so"),
        pytest.param("a[0] += b", "a = a.clone(); a[0] += b", id="that writes into a copy"),
    ],
)
def test_nothing_for_a_function(old: str, new: str) -> None:
    assert START.count(old) == 1
    run = run_cells(START.replace(old, new), CELL.replace("AddTo", "canvas = AddTo"))
    assert run.diagnosis is None


def test_nothing_where_it_gives_back_something_else() -> None:
    start = START.replace("return a\n", "return a[0].clone()\n").replace("return g, g[0]", "return None, g")
    assert "mark_dirty" not in rules(start, CELL.replace("AddTo", "row = AddTo"))


def test_what_is_written_gets_its_gradient() -> None:
    first = fixes(START, CELL)[0]
    assert first.rule == "mark_dirty" and first.gradients == "different"
    assert "        a[0] += b\n        ctx.mark_dirty(a)\n        return a\n" in first.cells[1]
    names: dict[str, object] = {}
    exec(first.cells[1] + "\n" + CELL.partition("\n")[2], names)
    v = names["v"]
    assert isinstance(v, torch.Tensor) and v.grad is not None and v.grad.tolist() == [6.0] * 3
