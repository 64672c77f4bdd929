"""What may run behind other statements without giving anything else."""

from __future__ import annotations

import ast

import pytest

from inplace_magic.source.document import CellSource
from inplace_magic.source.editor import Code
from inplace_magic.transforms.analysis.moving import may_pass


@pytest.mark.parametrize(
    ("others", "may"),
    [
        pytest.param("opt_d.zero_grad()\nloss_d.backward()\nopt_d.step()", True, id="an update of what it calls"),
        pytest.param("print(x.mean())", True, id="what only reads"),
        pytest.param("goal = 0.0", False, id="a name that it reads has another value by then"),
        pytest.param("x.add_(1)", False, id="what it reads is written by then"),
        pytest.param("D.requires_grad_(True)", False, id="what was set for it"),
        pytest.param("D.train()", False, id="a change of mode"),
        pytest.param("shown.append(loss_g)", False, id="what reads what it makes"),
    ],
)
def test_a_loss_may_be_computed_behind(others: str, may: bool) -> None:
    code = Code(CellSource(1, f"loss_g = (goal - D(x)).mean()\n{others}\nopt_d.step()"))
    moved, *rest, event = code.tree.body
    assert may_pass(code, [moved], [*rest, event], event) is may
    assert isinstance(event, ast.Expr)
