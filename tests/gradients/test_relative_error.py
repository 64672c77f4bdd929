from __future__ import annotations

import math

import pytest

from inplace_magic.gradients.relative_error import deviations
from inplace_magic.record.evidence import Backward, BackwardPass, LeafGradient

from ..cells import run_cells


def passes(*found: dict[str, float]) -> list[BackwardPass]:
    return [
        BackwardPass(
            Backward(i, (), index=i), tuple(LeafGradient(leaf, (1,), (value,)) for leaf, value in one.items()), 1
        )
        for i, one in enumerate(found)
    ]


@pytest.mark.parametrize(
    ("plain", "reference", "off"),
    [
        pytest.param([{"w": 1.0}], [{"w": 1.0}], {}, id="what is right is left out"),
        pytest.param([{"w": 1.5, "b": 1.0}], [{"w": 1.0, "b": 1.0}], {"w": 0.5}, id="one leaf of two"),
        pytest.param(
            [{"w": 1.0, "b": 1.0}, {"w": 1.1, "b": 1.0}, {"w": 1.2, "b": 2.0}],
            [{"w": 1.0, "b": 1.0}, {"w": 1.0, "b": 1.0}, {"w": 1.0, "b": 1.0}],
            {"w": 0.1},
            id="what follows from a wrong step is counted for no leaf",
        ),
        pytest.param([{"w": 1.0}], [{"w": 0.0}], {"w": math.inf}, id="a gradient that should have been zero"),
    ],
)
def test_how_far_off(plain: list[dict[str, float]], reference: list[dict[str, float]], off: dict[str, float]) -> None:
    assert deviations(passes(*plain), passes(*reference)) == pytest.approx(off)


def test_runs_of_another_length_are_not_compared() -> None:
    assert deviations(passes({"w": 1.0}), passes({"w": 1.0}, {"w": 1.0})) is None


INPUTS = """%%autograd_check
import numpy
import torch
torch.manual_seed(0)
x = numpy.linspace(0, 1, 24, dtype=numpy.float32).reshape(8, 3)
linear = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(linear.parameters(), lr=0.1)
for _ in range(4):
    loss = (linear(torch.from_numpy(x)) - 1).pow(2).mean()
    opt.zero_grad()
    x += 0.1
    loss.backward()
    opt.step()
"""


def test_an_innocent_parameter_is_not_named() -> None:
    run = run_cells(INPUTS)
    assert run.diagnosis is not None
    assert list(run.diagnosis.off) == ["linear.weight"], "the bias does not read the input"
