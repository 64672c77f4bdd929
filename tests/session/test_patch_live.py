"""A fix reaches the functions that live, each its own."""

from __future__ import annotations

from tests.cells import run_cells

CELL = """
import torch

def grow(x):
    x += 1
    return x

double, square = lambda x: x * 2, lambda x: x**2

class Holder:
    def __init__(self, value):
        self._value = value

    @property
    def value(self):
        return grow(self._value.exp())

    @value.setter
    def value(self, value):
        self._value = value * 3

holder = Holder(torch.ones(2, requires_grad=True))
"""


def test_functions_of_one_name_keep_their_own_code() -> None:
    run = run_cells(CELL, "holder.value.sum().backward()")
    assert run.cell("%autograd_fix --run").error is None
    run = run.cell(
        "assert (double(5), square(5)) == (10, 25)\nassert holder.value.shape == (2,)\nholder.value = 2\nassert holder._value == 6"
    )
    assert run.error is None


def test_fix_in_one_of_several_of_one_name() -> None:
    cell = """
    import torch
    first, second = lambda x: x.exp().add_(1), lambda x: x.sigmoid().mul_(2)
    w = torch.ones(2, requires_grad=True)
    """
    run = run_cells(cell, "(first(w) + second(w)).sum().backward()")
    assert run.diagnosis is not None and run.diagnosis.fixes
    assert run.cell("%autograd_fix --run").error is None
    assert (
        run.cell("assert torch.allclose(second(w), 2 * w.sigmoid()) and torch.allclose(first(w), w.exp() + 1)").error
        is None
    )


def test_several_lambdas_that_do_the_same() -> None:
    cell = """
    import torch
    table = {"a": lambda x: x.exp().add_(1), "b": lambda x: x.exp().add_(1)}
    w = torch.ones(2, requires_grad=True)
    """
    run = run_cells(cell, "table['a'](w).sum().backward()\ntable['b'](w).sum().backward()")
    assert run.diagnosis is not None
    assert run.diagnosis.fixes
    assert run.cell("%autograd_fix --run").error is None
