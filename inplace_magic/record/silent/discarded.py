"""Gradients that ``optimizer.zero_grad()`` clears, iteration after iteration, before anything has used them.

Nothing is raised: where no optimizer steps nothing is trained; where one steps less often than its gradients are cleared, what
was to be accumulated is that of the last backward.

Proof: between each of the first backwards and the ``zero_grad`` that has cleared all its gradients, no optimizer that holds one of
them has stepped, nothing else has read ``.grad``, and no hook was handed one. That may be meant: who measures how long a backward
takes uses no gradient.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import torch

from ...source.location import user_stack
from ...torch_private import MODULE_HOOK_FUNCTION, unobserved
from .. import evidence
from ..observed import LiveWrite, Stack
from .aliases import GRAD_GET, caller
from .events import Applied, Call, Detector, Passing, Run
from .gradients import GradientAt
from .nodes import has_hooks

_BACKWARDS = 8  # that are looked at, at most
_TWICE = 2  # of one line, until which it may be by chance
_LEAVES = 512  # of one


@dataclass(eq=False)
class _Backward:
    """One whose gradients have not been used yet. ``cleared``: where, and of which optimizer, ``zero_grad`` was called behind it."""

    event: evidence.Backward
    line: Stack
    gradients: list[GradientAt]
    cleared: tuple[Stack, weakref.ref[torch.optim.Optimizer]] | None = None


class Discarded(Detector):
    """Follows what becomes of the gradients of each line, until some are used."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._open: list[_Backward] = []
        self._discarded: dict[Stack, list[_Backward]] = {}  # by the line of the backward
        self._used: set[Stack] = set()
        self._steps: dict[int, Stack] = {}  # of each optimizer, by id
        self._backwards = 0
        self._within_step = False
        self._done = False

    def ends(self) -> None:
        for discarded in self._discarded.values():
            if len(discarded) >= _TWICE and (cleared := discarded[-1].cleared) is not None:
                stack, optimizer = cleared
                step, clock = self._steps.get(id(optimizer()), ()), self.run.tick()
                write = LiveWrite(stack, self.run.tick(), "cleared", "user", 0, "discarded")
                self._note_proven(write, discarded[-1].event, bound=step, clock=clock, kind="detached")
        self._discarded.clear()
        self._rest()

    def calls(self, call: Call) -> None:
        if self._open and call.name == "register_hook":
            self._rest()
        if not self._open or self._within_step or call.func != GRAD_GET:
            return
        frame = caller()
        if frame is None or frame.f_code.co_name != "zero_grad":
            self._rest()
        elif isinstance(optimizer := frame.f_locals.get("self"), torch.optim.Optimizer):
            cleared = user_stack(frame), weakref.ref(optimizer)
            for backward in self._of({id(call.args[0])}):
                backward.cleared = cleared

    def applied(self, applied: Applied) -> None:
        if applied.cls is MODULE_HOOK_FUNCTION:
            self._rest()

    def steps(self, optimizer: torch.optim.Optimizer) -> None:
        self._steps.setdefault(id(optimizer), user_stack(sys._getframe(1)))
        if self._open:
            self._used |= {
                one.line for one in self._of({id(p) for group in optimizer.param_groups for p in group["params"]})
            }
            self._leave(lambda known: known.line not in self._used)
        self._within_step = True

    def step_ends(self, optimizer: torch.optim.Optimizer) -> None:
        self._within_step = False

    def _of(self, leaves: set[int]) -> list[_Backward]:
        return [known for known in self._open if any(id(one.parameter()) in leaves for one in known.gradients)]

    def _leave(self, wanted: Callable[[_Backward], bool]) -> None:
        self._open = [known for known in self._open if wanted(known)]
        if not self._open:
            self.run.curious.discard(self)

    def _rest(self) -> None:
        """Somebody looks at gradients, as hooks may, or enough backwards have been looked at."""
        self._done = True
        self._leave(lambda known: False)

    def backward_begins(self, passing: Passing) -> None:
        if not self._open:
            return
        with unobserved():
            gone = [known for known in self._open if not any(one.is_untouched for one in known.gradients)]
        for known in gone:
            if known.cleared is not None:
                self._discarded.setdefault(known.line, []).append(known)
        self._leave(lambda known: known not in gone)

    def backward_ends(self, passing: Passing, result: object) -> None:
        if self._done or self._within_step or passing.event.asked:  # what a closure gives the step uses
            return
        self._backwards += 1
        if self._backwards > _BACKWARDS:
            self._rest()
        elif (line := self.run.here()) not in self._used:
            self._follow(passing, line)

    def _follow(self, passing: Passing, line: Stack) -> None:
        with unobserved():
            leaves = passing.leaves[:_LEAVES]
            gradients = [one for leaf in leaves if (one := GradientAt.of(leaf)) is not None]
            hooked = any(map(has_hooks, leaves))
        if hooked:
            self._rest()
        elif gradients:
            self._open.append(_Backward(passing.event, line, gradients))
            self.run.curious.add(self)
