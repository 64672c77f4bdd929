"""A whole optimizer that trains nothing: no parameter of it that requires grad ever gets a gradient.

Nothing is raised: ``step`` passes over what has no gradient. Where the path was cut is told by the first that applies:
a number, taken out of a value that was computed from its parameters, with which a loss is computed (``loss - value.item() *
reward``); a detach (or ``.data``) of such a value; a gradient of such a value, by ``autograd.grad``, that is not differentiable
itself; parameters made anew, which get the gradients; a copy of its parameters by way of ``.data`` or ``detach``; a stretch
without grad mode; else the step itself.

Proof: the optimizer has stepped after a backward, more than once or as the last thing, and in no step had any of its
parameters a gradient, when it began or once a closure had run.
"""

from __future__ import annotations

import sys
import weakref
from dataclasses import dataclass, field
from typing import Any

import torch

from ...gradients.backward import values_of
from ...source.location import kind_of, line_of, user_stack
from ...torch_private import sequence_number, unobserved
from .. import evidence
from ..observed import LiveWrite, Stack
from ..operations import arguments
from .aliases import DATA_GET, NUMBERS, called_by_user
from .events import Call, Detector, Passing, Run
from .nodes import node_number, node_of

_CUTS = 64  # places that are remembered
_READ = 7  # numbers of one line, beside the last
_NODES = 2_000  # of one graph that is walked over


@dataclass(frozen=True)
class _Place:
    """Where a path may have been cut; ``made``: the parameters that were made there and get gradients instead."""

    stack: Stack
    made: list[weakref.ref[torch.Tensor]] | None = None


@dataclass
class _Used:
    """The node ``of`` what was read as a number, those of what stood ``beside`` it in a computation, and what that has given: by
    the number of a node, or a leaf. ``fed``: a backward has gone through that."""

    of: Any
    beside: list[Any]
    by: list[int | weakref.ref[torch.Tensor]] = field(default_factory=list)
    fed: bool = False


@dataclass
class _Optimizer:
    """``fed``: some parameter has had a gradient."""

    optimizer: weakref.ref[torch.optim.Optimizer]
    stack: Stack
    steps: int = 0
    fed: bool = False
    places: list[_Place] = field(default_factory=list)
    need: evidence.Backward | None = None


@dataclass
class _Cuts:
    """Where paths were cut as long as some optimizer has had no gradient, by kind and place."""

    numbers: dict[Stack, _Used] = field(default_factory=dict)
    values: dict[Stack, Any] = field(default_factory=dict)  # the grad_fn of what was detached
    leaves: dict[Stack, list[torch.Tensor]] = field(default_factory=dict)
    gradients: dict[Stack, list[Any]] = field(default_factory=dict)  # the grad_fns of what they are the gradients of
    made: dict[Stack, list[weakref.ref[torch.Tensor]]] = field(default_factory=dict)
    modes: dict[Stack, None] = field(default_factory=dict)


class Untrained(Detector):
    """Follows optimizers."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._known: dict[int, _Optimizer] = {}
        self._cuts = _Cuts()
        self._last: evidence.Backward | None = None
        self._stepping: list[_Optimizer] = []  # they are handed closures, or make several steps of one
        self._watching = True
        # Where the running line read numbers, each with the grad_fn of the value.
        self._read: list[tuple[Stack, Any]] = []
        self._given: list[torch.Tensor] | None = None  # beside a number, to the call under way

    def begins(self) -> None:
        plain, detector = torch.no_grad.__enter__, self

        def enter(mode: Any) -> None:
            with detector.run.ours:
                frame = sys._getframe(1)
                if detector._watching and kind_of(frame.f_code.co_filename) == "user":
                    detector._note(detector._cuts.modes, user_stack(frame), None)
            plain(mode)

        self.run.put(torch.no_grad, "__enter__", enter)

    def ends(self) -> None:
        self._report()
        self._cuts, self._read = _Cuts(), []

    @staticmethod
    def _note(table: dict[Stack, Any], stack: Stack, value: Any) -> None:
        if stack and len(table) < _CUTS:
            table.setdefault(stack, value)

    # ---- where paths are cut

    def calls(self, call: Call) -> None:
        if self._read:
            self._look_for_number(call)
        number = call.func in NUMBERS and called_by_user()
        cuts = number or call.name in ("detach", "detach_") or call.func == DATA_GET
        if not self._watching or not cuts or not call.args:
            return
        tensor = call.args[0]
        with unobserved():
            if not tensor.requires_grad:
                return
            node = node_of(tensor)
        stack = user_stack(sys._getframe(1))
        if number and node is not None and stack:
            self._read = [*self._read[-_READ:], (stack, node)]
            self.run.curious.add(self)
        elif node is not None and not number:
            self._note(self._cuts.values, stack, node)
        elif stack and not number and len(self._cuts.leaves) < _CUTS:
            self._cuts.leaves.setdefault(stack, []).append(tensor)

    def _look_for_number(self, call: Call) -> None:
        """Whether the line that has read numbers computes with one what has a history; until another line makes a call."""
        here, there = user_stack(sys._getframe(2)), self._read[0][0]
        self._given = None
        if not here or here[0][0] is not there[0][0] or line_of(*here[0]) != line_of(*there[0]):
            self._read = []
            self.run.curious.discard(self)
        elif any(isinstance(one, float) for one in call.args):
            with unobserved():
                self._given = [one for one in arguments(call.args, call.kwargs) if one.requires_grad]

    def called(self, call: Call, result: Any) -> None:
        given, self._given = self._given, None
        if given is None or not isinstance(result, torch.Tensor) or not (given or call.kwargs.get("requires_grad")):
            return
        with unobserved():
            beside = [node for node in map(node_of, given) if node is not None]
            for stack, node in self._read:
                if len(self._cuts.numbers) < _CUTS:
                    used = self._cuts.numbers.setdefault(stack, _Used(node, beside))
                    used.by.append(node_number(result) or weakref.ref(result))
                    del used.by[:-_CUTS]

    def parameter_made(self, parameter: torch.Tensor, stack: Stack) -> None:
        """``nn.Parameter(...)`` has been called."""
        if self._watching and stack and len(self._cuts.made) < _CUTS:
            self._cuts.made.setdefault(stack, []).append(weakref.ref(parameter))

    def cut(self, stack: Stack) -> None:
        """A checkpoint with reentry has run whose inputs need no gradient, so that nothing goes back through it."""
        self._note(self._cuts.modes, stack, None)

    # ---- steps

    def backward_begins(self, passing: Passing) -> None:
        self._last = passing.event
        if self._cuts.numbers:
            with unobserved():
                numbers = {sequence_number(node) for node in passing.nodes}
            leaves = {*map(id, passing.leaves)}
            for used in self._cuts.numbers.values():
                given = (one in numbers if isinstance(one, int) else id(one()) in leaves for one in used.by)
                used.fed = used.fed or any(given)

    def backward_ends(self, passing: Passing, result: Any) -> None:
        with unobserved():
            # Who keeps the graph, as a rule, only looks at the gradient.
            asked = passing.event.asked and not passing.event.retained and result is not None and self._watching
            gradients = [one for one in values_of(result) if one is not None] if asked else []
            if gradients and not any(one.requires_grad for one in gradients):
                self._note(self._cuts.gradients, self.run.here(), [*map(node_of, passing.roots)])
            for known in self._stepping:
                known.fed = known.fed or any(p.grad is not None for p in _parameters(known.optimizer()))

    def step_ends(self, optimizer: torch.optim.Optimizer) -> None:
        self._stepping = [known for known in self._stepping if known.optimizer() is not optimizer]
        self._rest()

    def steps(self, optimizer: torch.optim.Optimizer) -> None:
        with unobserved():
            known = self._known.get(id(optimizer))
            if known is None or known.optimizer() is not optimizer:
                known = self._known[id(optimizer)] = _Optimizer(weakref.ref(optimizer), user_stack(sys._getframe(1)))
            if known.fed:
                return
            parameters = [p for p in _parameters(optimizer) if p.requires_grad]
            if not parameters or any(p.grad is not None for p in parameters):
                known.fed = True
            elif self._last is not None:
                known.steps += 1
                known.need = self._last
                known.places = known.places or self._where(parameters)
            if not known.fed:
                self._stepping.append(known)
            self._rest()

    def _rest(self) -> None:
        """Where each optimizer has had a gradient, no cut is looked for."""
        if all(one.fed for one in self._known.values()):
            self._cuts = _Cuts()
            self._watching = len(self._known) == 0

    def _where(self, parameters: list[torch.Tensor]) -> list[_Place]:
        """Where the path may have been cut, the likeliest first."""
        wanted = {id(p) for p in parameters}
        numbers = [(stack, used) for stack, used in self._cuts.numbers.items() if used.fed]
        found = [_Place(s) for s, used in numbers if _reaches([used.of], wanted) and not _reaches(used.beside, wanted)]
        found += [_Place(stack) for stack, node in self._cuts.values.items() if _reaches([node], wanted)]
        found += [_Place(stack) for stack, nodes in self._cuts.gradients.items() if _reaches(nodes, wanted)]
        for stack, made in self._cuts.made.items():  # it may be these that get the gradients
            trained = [ref for ref in made if (p := ref()) is not None and p.grad is not None and id(p) not in wanted]
            found += [_Place(stack, trained)] if trained else []
        found += [_Place(stack) for stack, leaves in self._cuts.leaves.items() if any(id(p) in wanted for p in leaves)]
        return [*found, *map(_Place, self._cuts.modes)]

    def _cut_of(self, known: _Optimizer) -> Stack:
        owned = {id(p) for one in self._known.values() for p in _parameters(one.optimizer())}
        for place in known.places:
            if place.made is None or any((p := ref()) is not None and id(p) not in owned for ref in place.made):
                return place.stack
        return known.stack

    def _report(self) -> None:
        for known in self._known.values():
            if known.fed or not known.steps or known.need is None or known.optimizer() is None:
                continue
            stack = self._cut_of(known)
            operation = "step" if stack is known.stack else "cut"
            self._note_proven(LiveWrite(stack, self.run.tick(), operation, "user", 0, "untrained"), known.need)


def _parameters(optimizer: torch.optim.Optimizer | None) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]] if optimizer is not None else []


def _reaches(roots: list[Any], wanted: set[int]) -> bool:
    """Whether a graph goes back to one of the leaves (by id)."""
    seen: set[Any] = set()
    todo = [*roots]
    while todo and len(seen) < _NODES:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) in wanted:
            return True
        todo.extend(following for following, _ in node.next_functions)
    return False
