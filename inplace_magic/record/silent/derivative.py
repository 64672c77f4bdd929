"""Whether the backward of a custom Function gives the derivative of its forward, by finite differences.

A Function that overwrites its input, and then saves it, may want either value: ``x.exp_()`` wants its result, and
``x.mul_(x.sigmoid())`` what it was given. Torch asks for mark_dirty in both; a wrong gradient has the second alone. The forward is
run twice more on inputs that are moved a little in one random direction, the backward once; only in a reference run, which
is a copy of the session. Source: torch.autograd.gradcheck in its fast mode, which takes a Function by itself.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.autograd.function import FunctionCtx

from ...torch_private import unobserved

_STEP = 1e-3  # of the largest value, or of 1: float32 keeps four digits of the difference
_CLOSE, _CLOSE_IN_HALF = 0.002, 0.02


class Derivative:
    """The change of a Function's outputs along one direction of its inputs, or None where its forward cannot be run again.

    ``args`` are what it is applied to, ``given`` maps the positions of those that require grad to their values before that.
    """

    def __init__(self, cls: Any, args: Sequence[Any], given: dict[int, torch.Tensor]) -> None:
        self._cls, self._count = cls, len(args)
        self._directions: dict[int, torch.Tensor] = {}
        self._close = _CLOSE
        self._change: list[torch.Tensor | None] | None = None
        with _aside():
            try:
                self._measure(args, given)
            except Exception:
                self._change = None

    def _measure(self, args: Sequence[Any], given: dict[int, torch.Tensor]) -> None:
        floating = {n: value for n, value in given.items() if value.is_floating_point()}
        if any(value.element_size() < 4 for value in floating.values()):
            floating = {n: value.float() for n, value in floating.items()}
            self._close = _CLOSE_IN_HALF
        self._directions = {n: torch.randn_like(value) for n, value in floating.items()}
        largest = max(float(value.abs().max()) for value in floating.values() if value.numel())
        step = _STEP * max(largest, 1.0)
        ahead, behind = (self._outputs(args, {**given, **self._moved(floating, by)}) for by in (step, -step))
        self._change = [_over(one, other, 2 * step) for one, other in zip(ahead, behind, strict=True)]

    def _moved(self, given: dict[int, torch.Tensor], by: float) -> dict[int, torch.Tensor]:
        return {n: value + by * self._directions[n] for n, value in given.items()}

    def _outputs(self, args: Sequence[Any], given: dict[int, torch.Tensor]) -> tuple[Any, ...]:
        values = [given.get(n, arg) for n, arg in enumerate(args)]
        values = [one.detach().clone() if isinstance(one, torch.Tensor) else one for one in values]
        ctx = FunctionCtx()
        ctx.needs_input_grad = tuple(n in given for n in range(self._count))  # type: ignore[attr-defined]
        apart = self._cls.setup_context is not torch.autograd.Function.setup_context
        result = self._cls.forward(*values) if apart else self._cls.forward(ctx, *values)
        return result if isinstance(result, tuple) else (result,)

    def is_given_by(self, node: Any, gradients: Sequence[torch.Tensor | None]) -> bool | None:
        """Whether the backward of the Function, as things stand now, agrees with it; None where that is not known."""
        if self._change is None or len(gradients) != len(self._change):
            return None
        with _aside():
            try:
                return self._agrees(node, gradients)
            except Exception:
                return None

    def _agrees(self, node: Any, gradients: Sequence[torch.Tensor | None]) -> bool:
        arrived = [
            g if g is not None or c is None else torch.zeros_like(c) for g, c in zip(gradients, self._change or ())
        ]
        results = self._cls.backward(node, *arrived)
        results = results if isinstance(results, tuple) else (results,)
        there = [g * c for g, c in zip(arrived, self._change or ()) if g is not None and c is not None]
        back = [results[n] * d for n, d in self._directions.items() if results[n] is not None]
        (expected, size), (found, other) = _sum(there), _sum(back)
        return abs(expected - found) <= self._close * max(abs(expected), abs(found), size, other)


def _sum(terms: Sequence[torch.Tensor]) -> tuple[float, float]:
    """The sum of all elements, and its size by chance, where many cancel out."""
    squares = sum(float(term.float().square().sum()) for term in terms)
    return sum(float(term.float().sum()) for term in terms), squares**0.5


def _over(ahead: Any, behind: Any, step: float) -> torch.Tensor | None:
    """Their difference quotient; None for what is no tensor of numbers."""
    if not isinstance(ahead, torch.Tensor) or not ahead.is_floating_point():
        return None
    difference: torch.Tensor = (ahead.detach() - behind.detach()) / step
    return difference


@contextlib.contextmanager
def _aside() -> Iterator[None]:
    """What runs here prints nothing, draws no random number of the run, and is not looked at."""
    with torch.random.fork_rng(), torch.no_grad(), unobserved(), contextlib.redirect_stdout(io.StringIO()):
        yield
