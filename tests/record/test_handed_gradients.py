"""Writes into a gradient that backward has handed to a hook or to a Function: found where others get it, too."""

from __future__ import annotations

import textwrap

import pytest

from tests.cells import Run, run_cells
from tests.sandboxes import SANDBOXES

START = """
    import torch
    torch.manual_seed(0)
    w, v = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)

    class Gate(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            grad[0] = 0
            return grad * 2

    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, grad):
            grad.mul_(2)
            return grad

    class Scale:
        def __call__(self, grad):
            grad.mul_(0.1)

    def halve(grad):
        grad /= 2
    """
# The operand that was made last runs first.
SHARED = "a, b = w * 2, v * 3\n{hook}\n(a + b).pow(2).sum().backward()"
ALONE = "a, b = w * 2, v * 3\n{hook}\n(a * b).sum().backward()"


def watched(cell: str) -> Run:
    return run_cells(START, "%%autograd_check\n" + cell)


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(SHARED.format(hook="b.register_hook(lambda g: g * 0.1)"), id="a hook that gives back another tensor"),
        pytest.param(ALONE.format(hook="b.register_hook(halve)"), id="a gradient that nobody else gets"),
        pytest.param("w.register_hook(lambda g: g.clamp_(-1, 1))\n(w * 3).sum().backward()", id="a parameter that clips its own"),
        pytest.param(
            "def twice(g):\n    g = g.clone()\n    g *= 2\n    return g\n" + SHARED.format(hook="b.register_hook(twice)"),
            id="a copy under the name of the argument",
        ),
        pytest.param(
            "norms = torch.zeros(3)\ndef log(g):\n    norms.add_(g)\n" + SHARED.format(hook="b.register_hook(log)"),
            id="a log that a hook writes",
        ),
        pytest.param(SHARED.format(hook="b.register_hook(lambda g: g.mul_(1))"), id="a write that changes nothing"),
        pytest.param("Gate.apply(w).pow(2).sum().backward()", id="a Function whose gradient nobody else gets"),
    ],
)  # fmt: skip
def test_nothing_is_found(cell: str) -> None:
    run = watched(cell)
    assert run.error is None
    assert run.diagnosis is None, run.output
    assert "nothing found" in run.output


@pytest.mark.parametrize(
    ("cell", "line"),
    [
        pytest.param(SHARED.format(hook="b.register_hook(halve)"), "grad /= 2", id="an operator"),
        pytest.param(SHARED.format(hook="b.register_hook(Scale())"), "grad.mul_(0.1)", id="a callable object"),
        pytest.param("h = lambda g: g.mul_(0.1)\n" + SHARED.format(hook="b.register_hook(h)"), "h = lambda g: g.mul_(0.1)", id="a lambda"),
        pytest.param(
            "def h(g):\n    g.data[1:] = 0\n" + SHARED.format(hook="b.register_hook(h)"), "g.data[1:] = 0", id="a part, through .data"
        ),
        pytest.param(
            "def zero(t):\n    t.zero_()\ndef h(g):\n    zero(g)\n" + SHARED.format(hook="b.register_hook(h)"), "t.zero_()", id="in a helper"
        ),
        pytest.param("w.register_hook(halve)\n((w + v) * 3).exp().sum().backward()", "grad /= 2", id="a leaf's hook"),
        pytest.param("(w * 3 + Gate.apply(v)).pow(2).sum().backward()", "grad[0] = 0", id="a Function"),
        pytest.param("(w * 3 + Once.apply(v)).pow(2).sum().backward()", "grad.mul_(2)", id="a Function that is differentiated once"),
    ],
)  # fmt: skip
def test_the_line_is_found_and_a_fix_is_proved(cell: str, line: str) -> None:
    found = watched(cell).diagnosis
    assert found is not None and found.family == "silent"
    assert found.changed is not None and found.changed.text == line
    assert found.saved is None
    assert "also passes to other operations" in found.sentence
    assert found.needed is not None and "backward()" in found.needed.text
    assert found.fixes and found.fixes[0].gradients == "same"


def test_others_get_what_they_should_and_the_hook_keeps_its_effect() -> None:
    run = watched(SHARED.format(hook="b.register_hook(halve)"))
    assert run.diagnosis is not None
    assert run.diagnosis.off == {"w": 0.5}  # v's gradient is halved, as the hook means it


@pytest.mark.parametrize("room", SANDBOXES)
def test_the_session_is_as_the_cell_left_it(room: str) -> None:
    run = run_cells(
        f"%config InplaceMagic.sandbox = {room!r}",
        START,
        "%%autograd_check\n" + SHARED.format(hook="b.register_hook(halve)"),
    )
    assert run.diagnosis is not None
    names = run.shell.user_ns
    assert names["w"].grad.tolist() == [10.0] * 3  # half of it, wrong as it is
    assert [hook.__name__ for hook in names["b"]._backward_hooks.values()] == ["halve"]
    assert not names["a"]._backward_hooks


GUARD = """
    class Guard(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            return t * 2
        @staticmethod
        def backward(ctx, grad):
            {lines}
            return grad * 2
    Guard.apply(w).{end}.backward()
    """


def guarded(lines: str, end: str = "sum()") -> str:
    return textwrap.dedent(GUARD).format(lines=lines, end=end)


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(guarded("grad = grad.clone(); grad[0] = 0"), id="a copy is written"),
        pytest.param(guarded("grad[0] = 0", "mul(2).sum()"), id="a gradient with memory of its own"),
        pytest.param(guarded("grad.expand(3)"), id="nothing is written"),
    ],
)
def test_a_gradient_with_memory_for_each_element_may_be_written(cell: str) -> None:
    assert watched(cell).diagnosis is None


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(guarded("grad[0] = 0"), id="by a Function"),
        pytest.param(
            "def keep(g):\n    g[0] = 0\nh = w * 2\nh.register_hook(keep)\nh.sum().backward()", id="by a hook"
        ),
    ],
)
def test_an_element_of_a_gradient_that_is_one_number_is_not_written_alone(cell: str) -> None:
    found = watched(cell).diagnosis
    assert found is not None and found.changed is not None and found.changed.text.endswith("[0] = 0")
    assert "changed all elements of a gradient that share memory" in found.sentence
    assert found.fixes and found.fixes[0].gradients == "same"
