"""A whole optimizer that trains nothing: no parameter of it that requires grad ever gets a gradient, or none but zeros.

Nothing is raised: ``step`` passes over what has no gradient, and adds what is zero (behind ``round``, say). What is told is the
line that sets the gradients to None between a backward and the step; else the one where the path was cut, as far as that is
seen (cuts.py); else the step itself.

Proof: the optimizer has stepped after a backward, more than once or as the last thing, and in no step had any of its
parameters a gradient, when it began or once a closure had run, but zeros, from backwards each of whose ways to it led through
a node that gives nothing else; nor has a step changed what had none.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from dataclasses import dataclass, field
from typing import Any

import torch

from ...source.location import user_stack
from ...torch_private import unobserved, variable_meta, version_of
from .. import evidence
from ..observed import LiveWrite, Stack
from .aliases import GRAD_SET
from .cuts import Cuts, Place
from .events import Call, Detector, Passing, Run
from .nodes import has_plain_values

_CALLS = 4_096  # that are heard at first
_TRACED = 4  # steps without any gradient, until which each call is heard
_TOLD = 4  # places of one optimizer
_CLEARED = 64  # gradients of one iteration
_BACKWARDS = 64  # before which some optimizer has to step
_LOOKED_AT, _VALUES = (
    8,
    1_024,
)  # parameters, and values of each, that a step may have changed past their versions (``p.data``)


@dataclass
class _Optimizer:
    """``again``: it has stepped before; ``fed``: some parameter has had a gradient; ``flat``: some has had zeros;
    ``cleared``: some had one, which was set to None."""

    optimizer: weakref.ref[torch.optim.Optimizer]
    stack: Stack
    steps: int = 0
    again: bool = False
    fed: bool = False
    flat: bool = False
    cleared: bool = False
    before: list[tuple[int, torch.Tensor | None]] = field(default_factory=list)  # the parameters, as a step begins
    places: list[Place] = field(default_factory=list)
    need: evidence.Backward | None = None


class Untrained(Detector):
    """Follows optimizers."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._known: dict[int, _Optimizer] = {}
        self._cuts = Cuts(run)
        self._last: evidence.Backward | None = None
        self._stepping: list[_Optimizer] = []  # they are handed closures, or make several steps of one
        self._watching = True
        self._within_step = self._given_up = False
        self._heard = self._backwards = 0
        self._cleared: dict[
            int, Stack
        ] = {}  # whose gradients were set to None since the last backward, by id, and where
        self._zero: dict[int, Stack] = {}  # the leaves that nothing but zeros has got to, by id, and where it became so

    def begins(self) -> None:
        def making(kind: Any, *args: Any, **kwargs: Any) -> Any:
            made = type.__call__(kind, *args, **kwargs)
            with self.run.ours:
                self.leaf_made(made, args or (*kwargs.values(),), user_stack(sys._getframe(1)), parameter=False)
            return made

        if (variable := variable_meta()) is not None:
            self.run.put(variable, "__call__", making)
        self._listen()

    def ends(self) -> None:
        self._report()
        self._cuts.clear()

    # ---- where paths are cut

    def calls(self, call: Call) -> None:
        if self._watching:
            self._heard, before = self._heard + 1, self._cuts.on_a_line
            if call.func == GRAD_SET and call.args[1] is None and len(self._cleared) < _CLEARED:
                with unobserved():
                    if call.args[0].grad is not None:
                        self._cleared[id(call.args[0])] = user_stack(sys._getframe(1))
            self._cuts.calls(call)
            if self._heard == _CALLS or self._cuts.on_a_line is not before:
                self._listen()

    def called(self, call: Call, result: Any) -> None:
        if self._watching and not (self._within_step and not torch.is_grad_enabled()):  # a closure runs with it
            self._cuts.called(call, result)

    def leaf_made(self, leaf: torch.Tensor, given: Any, stack: Stack, parameter: bool) -> None:
        """``nn.Parameter(...)`` or ``Variable(...)`` has been called."""
        if self._watching and stack:
            self._cuts.leaf_made(leaf, given[0] if given else None, stack, parameter)

    def cut(self, stack: Stack) -> None:
        """A checkpoint with reentry has run whose inputs need no gradient, so that nothing goes back through it."""
        self._cuts.ended(stack)

    def cut_off(self, leaf: torch.Tensor) -> list[Place]:
        """Where what is computed of a leaf was cut on its way to a loss, the likeliest place first."""
        return self._cuts.cut_off(leaf)

    def _listen(self) -> None:
        """Whether each call is heard, or those alone that are heard anyway."""
        early = self._heard < _CALLS or any(0 < one.steps < _TRACED for one in self._known.values() if not one.fed)
        if self._watching and (early or self._cuts.on_a_line):
            self.run.curious.add(self)
        else:
            self.run.curious.discard(self)

    def _rest(self) -> None:
        """No cut is looked for any more."""
        self._cuts.clear()
        self._zero.clear()
        self._watching = False
        self._listen()

    # ---- steps

    def backward_begins(self, passing: Passing) -> None:
        self._last = passing.event
        self._cleared.clear()
        self._backwards += 1
        if self._backwards > _BACKWARDS and not self._known and self._watching:
            self._rest()
        if self._watching:
            with unobserved():
                self._cuts.backward_begins(passing)
                flat, place = self._cuts.flat(passing)
                for leaf in passing.leaves if flat or self._zero else ():
                    if id(leaf) in flat and (leaf.grad is None or id(leaf) in self._zero):
                        self._zero[id(leaf)] = place
                    else:
                        self._zero.pop(id(leaf), None)

    def backward_ends(self, passing: Passing, result: Any) -> None:
        if passing.given_up:  # what gets no gradient now would have got one
            self._known.clear()
            self._given_up = True
        with unobserved():
            if self._watching:
                self._cuts.backward_ends(passing, result)
            for known in self._stepping:
                known.fed = known.fed or any(map(self._has_gradient, _parameters(known.optimizer())))

    def _has_gradient(self, parameter: torch.Tensor) -> bool:
        if parameter.grad is None or id(parameter) not in self._zero:
            return parameter.grad is not None
        with contextlib.suppress(RuntimeError):  # of a sparse one nobody counts
            return bool(parameter.grad.count_nonzero())
        return True

    def step_ends(self, optimizer: torch.optim.Optimizer) -> None:
        self._within_step = False
        for known in (one for one in self._stepping if one.optimizer() is optimizer):
            # It may train by other means than ``.grad``.
            with unobserved():
                changed = not _are_same(known.before, _as_they_are(optimizer))
            known.fed = known.fed or (changed and not known.flat)
        self._stepping = [known for known in self._stepping if known.optimizer() is not optimizer]
        again = self._known.get(id(optimizer))
        if again is not None and again.again and all(one.fed for one in self._known.values()):
            self._rest()  # once around: each optimizer has had a gradient
        self._listen()

    def steps(self, optimizer: torch.optim.Optimizer) -> None:
        self._within_step = True
        if self._given_up:
            return
        with unobserved():
            known = self._known.get(id(optimizer))
            if known is None or known.optimizer() is not optimizer:
                known = self._known[id(optimizer)] = _Optimizer(weakref.ref(optimizer), user_stack(sys._getframe(1)))
            else:
                known.again = True
            if known.fed:
                return
            parameters = [p for p in _parameters(optimizer) if p.requires_grad]
            frozen = () if parameters else self._cuts.root
            if any(map(self._has_gradient, parameters)) or not (parameters or frozen):
                known.fed = True
            elif self._last is not None:
                known.steps += 1
                known.need = self._last
                flat = next((self._zero[id(p)] for p in parameters if self._zero.get(id(p))), ())
                known.flat = any(id(p) in self._zero for p in parameters)
                cleared = next((self._cleared[id(p)] for p in parameters if self._cleared.get(id(p))), ())
                known.cleared = bool(cleared)
                if cleared or flat or frozen:
                    known.places = [Place(cleared or flat or frozen)]
                elif known.steps <= _TRACED:
                    known.places = self._cuts.places(parameters) or known.places
            if not known.fed:
                known.before = _as_they_are(optimizer)
                self._stepping.append(known)
            self._listen()

    def _cuts_of(self, known: _Optimizer) -> list[Stack]:
        """Where the path was cut, as far as that is proven in several places, else the likeliest one."""
        owned = {id(p) for one in self._known.values() for p in _parameters(one.optimizer())}
        places = [
            place
            for place in known.places
            if not place.made or any((p := ref()) is None or id(p) not in owned for ref in place.made)
        ]
        several = [place.stack for place in places if place.proven] if places and places[0].proven else []
        return [*dict.fromkeys(several)][:_TOLD] or [place.stack for place in places[:1]]

    def _report(self) -> None:
        for known in self._known.values():
            if known.fed or not known.steps or known.need is None or known.optimizer() is None:
                continue
            how: evidence.How = "cleared" if known.cleared else "flat" if known.flat else "untrained"
            cuts = self._cuts_of(known)
            for stack in cuts or [known.stack]:
                operation = "cut" if cuts else "step"
                self._note_proven(LiveWrite(stack, self.run.tick(), operation, "user", 0, how), known.need)


def _parameters(optimizer: torch.optim.Optimizer | None) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]] if optimizer is not None else []


def _as_they_are(optimizer: torch.optim.Optimizer) -> list[tuple[int, torch.Tensor | None]]:
    """The version of each parameter that requires grad, and some values of the first ones."""
    parameters = [p for p in _parameters(optimizer) if p.requires_grad]
    return [
        (version_of(p), p.detach().flatten()[:_VALUES].clone() if n < _LOOKED_AT and has_plain_values(p) else None)
        for n, p in enumerate(parameters)
    ]


def _are_same(before: list[tuple[int, torch.Tensor | None]], now: list[tuple[int, torch.Tensor | None]]) -> bool:
    return len(before) == len(now) and all(
        version == known and (one is None or other is None or torch.equal(one, other))
        for (known, one), (version, other) in zip(before, now, strict=True)
    )
