"""Whether the backward of a custom Function gives the derivative of its forward, by finite differences.

A Function that overwrites its input, and then saves it, may want either value: ``x.exp_()`` wants its result, and
``x.mul_(x.sigmoid())`` what it was given. Torch asks for mark_dirty in both; a wrong gradient has the second alone. The forward is
run twice more on inputs that are moved a little in one random direction, the backward once; only in a reference run, which
is a copy of the session. What these runs write beside their own is put back. Source: torch.autograd.gradcheck in its fast
mode, which takes a Function by itself.
"""

from __future__ import annotations

import contextlib
import copy
import io
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.function import FunctionCtx

from ...torch_private import unobserved
from ..observed import write_into

# By precision: by how much a value is moved, of itself or of 1, and how far off the sum of what that changes may be.
_STEPS = {torch.float64: (1e-6, 1e-4), torch.float32: (1e-3, 2e-3)}
_CLOSE_IN_HALF = 0.02


@dataclass(frozen=True)
class Given:
    """What a Function is applied to, ahead of its forward. ``args`` are copies; ``needs`` are those that require grad."""

    args: tuple[Any, ...]
    needs: tuple[bool, ...]
    randomness: Randomness

    @classmethod
    def to(cls, args: Sequence[Any]) -> Given:
        with torch.no_grad(), unobserved():
            copies = tuple(one.detach().clone() if isinstance(one, torch.Tensor) else one for one in args)
        needs = tuple(isinstance(one, torch.Tensor) and one.requires_grad for one in args)
        return cls(copies, needs, Randomness())


class Randomness:
    """The states of the generators that everybody shares, to be had once more."""

    def __init__(self) -> None:
        self._python, self._torch = random.getstate(), torch.get_rng_state()
        numpy = sys.modules.get("numpy.random")
        self._numpy = numpy.get_state() if numpy is not None else None

    def put_back(self) -> None:
        random.setstate(self._python)
        torch.set_rng_state(self._torch)
        if self._numpy is not None:
            sys.modules["numpy.random"].set_state(self._numpy)


class Derivative:
    """The change of a Function's outputs along one direction of its inputs; None where its forward cannot be run again.

    ``outside``: the tensors that its forward reads beside its inputs.
    """

    def __init__(self, cls: Any, given: Given, outside: Sequence[torch.Tensor]) -> None:
        self._cls, self._given, self._outside = cls, given, outside
        self._directions: dict[int, torch.Tensor] = {}
        self._change: list[torch.Tensor | None] | None = None
        self._close = 0.0
        for precision in _STEPS:  # a forward that knows weights of its own precision takes no other one
            with contextlib.suppress(Exception), _aside():
                self._change = self._measured(precision)
                return

    def _measured(self, precision: torch.dtype) -> list[torch.Tensor | None]:
        step, self._close = _STEPS[precision]
        values = {n: one for n, (one, needs) in enumerate(zip(self._given.args, self._given.needs)) if needs}
        if any(value.element_size() < 4 for value in values.values()):
            self._close = _CLOSE_IN_HALF
        values = {n: one.to(torch.promote_types(one.dtype, precision)) for n, one in values.items()}
        self._directions = {n: torch.randn_like(one) * one.abs().clamp(min=1) for n, one in values.items()}
        ahead, behind = (
            self._outputs({n: one + by * self._directions[n] for n, one in values.items()}) for by in (step, -step)
        )
        return [_over(one, other, 2 * step) for one, other in zip(ahead, behind, strict=True)]

    def _outputs(self, values: dict[int, torch.Tensor]) -> tuple[Any, ...]:
        kept = [one.clone() for one in self._outside]
        args = [one.clone() if isinstance(one, torch.Tensor) else one for one in self._given.args]
        args = [values.get(n, one) for n, one in enumerate(args)]
        ctx = FunctionCtx()
        ctx.needs_input_grad = self._given.needs  # type: ignore[attr-defined]
        apart = self._cls.setup_context is not torch.autograd.Function.setup_context
        self._given.randomness.put_back()
        try:
            result = self._cls.forward(*args) if apart else self._cls.forward(ctx, *args)
        finally:
            for one, value in zip(self._outside, kept):
                write_into(one, value)
        return result if isinstance(result, tuple) else (result,)

    def is_given_by(self, node: Any, gradients: Sequence[torch.Tensor | None]) -> bool | None:
        """Whether the backward of the Function, as things stand now, agrees with it; None where that is not known."""
        if self._change is None or len(gradients) != len(self._change):
            return None
        with contextlib.suppress(Exception), _aside():
            return self._agrees(node, gradients, self._change)
        return None

    def _agrees(self, node: Any, gradients: Sequence[torch.Tensor | None], change: list[torch.Tensor | None]) -> bool:
        arrived = [g if g is not None or c is None else torch.zeros_like(c) for g, c in zip(gradients, change)]
        results = self._cls.backward(_Ctx(node), *(g.clone() if g is not None else None for g in arrived))
        results = results if isinstance(results, tuple) else (results,)
        there = [_terms(g, c) for g, c in zip(arrived, change) if g is not None and c is not None]
        back = [_terms(results[n], d) for n, d in self._directions.items() if results[n] is not None]
        (expected, size), (found, other) = _sum(there), _sum(back)
        return abs(expected - found) <= self._close * max(abs(expected), abs(found), size, other)


class _Ctx:
    """A node as its backward sees it, which keeps what that sets, deletes or takes from a list to itself."""

    def __init__(self, node: Any) -> None:
        object.__setattr__(self, "_node", node)
        object.__setattr__(self, "_own", {})

    def __getattr__(self, name: str) -> Any:
        if name not in self._own:
            value = getattr(self._node, name)
            self._own[name] = copy.copy(value) if isinstance(value, (list, dict, set)) else value
        if self._own[name] is _GONE:
            raise AttributeError(name)
        return self._own[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self._own[name] = value

    def __delattr__(self, name: str) -> None:
        getattr(self, name)
        self._own[name] = _GONE


_GONE = object()


def _terms(gradient: torch.Tensor, change: torch.Tensor) -> torch.Tensor:
    """What each element adds to the change of a loss; torch's gradient of a complex number is the conjugate one."""
    return torch.real(gradient.conj() * change)


def _sum(terms: Sequence[torch.Tensor]) -> tuple[float, float]:
    """The sum of all elements, and its size by chance, where many cancel out."""
    squares = sum(float(term.float().square().sum()) for term in terms)
    return sum(float(term.float().sum()) for term in terms), squares**0.5


def _over(ahead: Any, behind: Any, step: float) -> torch.Tensor | None:
    """Their difference quotient; None for what is no tensor of numbers."""
    if not isinstance(ahead, torch.Tensor) or not (ahead.is_floating_point() or ahead.is_complex()):
        return None
    difference: torch.Tensor = (ahead.detach() - behind.detach()) / step
    return difference


@contextlib.contextmanager
def _aside() -> Iterator[None]:
    """What runs here prints nothing, draws no random number of the run, and is not looked at."""
    as_it_was = Randomness()
    try:
        with torch.random.fork_rng(), torch.no_grad(), unobserved(), contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        as_it_was.put_back()
