"""Where the path to an optimizer's parameters may have been cut, the likeliest first.

By what a backward went through: a number with which a loss was computed (``loss - value.item() * reward``); what a new leaf
that it ended in was computed of, where a call, or a block without grad mode, gave it without its history (``argmax``, ``>``,
``detach``, ``torch.tensor(net(x))``); the last number that was read before the new leaves which alone it ended in were made, or
that leaf itself. Else by what was seen beside it: a detach (or ``.data``), a gradient by ``autograd.grad`` that is not
differentiable itself, parameters made anew, a copy of parameters, a block without grad mode.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ...gradients.backward import values_of
from ...source.location import line_of, user_stack
from ...torch_private import sequence_number, unobserved
from ..observed import Stack
from ..operations import arguments
from .aliases import DATA_GET, GRAD_GET, NUMBERS, called_by_user
from .events import Call, Passing, Run
from .followed import Followed
from .nodes import is_trained_leaf, node_number, node_of

_CUTS = 64  # places that are remembered
_READ = 7  # numbers of one line, beside the last
_NODES = 2_000  # of one graph that is walked over
_LEAVES = 256  # that are made
_REQUIRES_GRAD = torch.Tensor.requires_grad.__set__  # type: ignore[attr-defined]
_FLAT = (
    "Round",
    "Floor",
    "Ceil",
    "Trunc",
    "Sign",
)  # the nodes, by the beginning of their names, that give nothing but zeros
_OF_NO_VALUE = frozenset({"requires_grad_", "retain_grad", "register_hook"})  # give what they are given, or nothing


@dataclass(frozen=True)
class Place:
    """Where a path may have been cut; ``made``: the leaves that were made there and get gradients instead."""

    stack: Stack
    made: Sequence[weakref.ref[torch.Tensor]] = ()


@dataclass
class _Used:
    """The node ``of`` what was read as a number, those of what stood ``beside`` it in a computation, and what that has given: by
    the number of a node, or a leaf. ``fed``: a backward has gone through that."""

    of: Any
    beside: list[Any]
    by: list[int | weakref.ref[torch.Tensor]] = field(default_factory=list)
    fed: bool = False


@dataclass(frozen=True)
class _Leaf:
    """A leaf that a line made, of what was cut at ``cuts``; ``read``: the numbers that were read before, the last one first.
    ``went_back``: a backward has ended in it, ``alone``: in nothing but leaves that were made so."""

    leaf: weakref.ref[torch.Tensor]
    stack: Stack
    cuts: frozenset[Stack]
    read: tuple[tuple[Stack, Any], ...] = ()
    parameter: bool = False
    went_back: bool = False
    alone: bool = False


class Cuts:
    """Follows what a run computes of values that have lost their history."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._modes: list[Stack] = []  # the blocks without grad mode that are open; empty for what is not the user's
        self.clear()

    def clear(self) -> None:
        self._used: dict[Stack, _Used] = {}
        self._detached: dict[Stack, Any] = {}  # the grad_fn of what was detached
        self._copied: dict[Stack, list[torch.Tensor]] = {}  # leaves whose values were read
        self._gradients: dict[Stack, list[Any]] = {}  # the grad_fns of what they are the gradients of
        self._without_grad: dict[Stack, None] = {}
        self._lost: dict[
            Stack, Any
        ] = {}  # where a call gave what has no history, with the node or the leaf that it was given
        self._values = Followed[Stack](discrete=True)
        self._made: dict[int, _Leaf] = {}
        self._flat: dict[int, Stack] = {}  # by the number of a node that gives nothing but zeros
        self._numbers: dict[
            Stack, Any
        ] = {}  # where the user has read numbers, the last one at the end, with their nodes
        self._read: list[tuple[Stack, Any]] = []  # of these, by the line that runs
        self._given: list[torch.Tensor] | None = None  # beside a number, to the call under way

    def entering(self, mode_of: Stack) -> None:
        """A block without grad mode begins."""
        self._modes.append(mode_of)
        self._note(self._without_grad, mode_of, None)

    def left(self) -> None:
        """The innermost such block is over."""
        del self._modes[-1:]

    @property
    def on_a_line(self) -> bool:
        """Whether the line that runs has read a number."""
        return bool(self._read)

    @staticmethod
    def _note(table: dict[Stack, Any], stack: Stack, value: Any) -> None:
        if stack and len(table) < _CUTS:
            table.setdefault(stack, value)

    # ---- calls

    def calls(self, call: Call) -> None:
        if self._read:
            self._look_for_number(call)
        number = call.func in NUMBERS and called_by_user()
        if not call.args or not (number or call.name in ("detach", "detach_") or call.func == DATA_GET):
            return
        tensor = call.args[0]
        with unobserved():
            if not tensor.requires_grad:
                return
            node = node_of(tensor)
        stack = user_stack(sys._getframe(2))
        if number and node is not None and stack:
            self._read = [*self._read[-_READ:], (stack, node)]
            self._numbers.pop(stack, None)
            self._note(self._numbers, stack, node)
        elif node is not None and not number:
            self._note(self._detached, stack, node)
        elif stack and not number and len(self._copied) < _CUTS:
            self._copied.setdefault(stack, []).append(tensor)

    def _look_for_number(self, call: Call) -> None:
        """Whether the line that has read numbers computes with one what has a history; until another line makes a call."""
        here, there = user_stack(sys._getframe(3)), self._read[0][0]
        self._given = None
        if not here or here[0][0] is not there[0][0] or line_of(*here[0]) != line_of(*there[0]):
            self._read = []
        elif any(isinstance(one, float) for one in call.args):
            with unobserved():
                self._given = [one for one in arguments(call.args, call.kwargs) if one.requires_grad]

    def called(self, call: Call, result: Any) -> None:
        given, self._given = self._given, None
        if given is not None and isinstance(result, torch.Tensor) and (given or call.kwargs.get("requires_grad")):
            with unobserved():
                beside = [node for node in map(node_of, given) if node is not None]
                for stack, node in self._read:
                    if len(self._used) < _CUTS:
                        used = self._used.setdefault(stack, _Used(node, beside))
                        used.by.append(node_number(result) or weakref.ref(result))
                        del used.by[:-_CUTS]
        if call.func not in NUMBERS and call.func != GRAD_GET:
            with unobserved():
                self._follow(call, result)

    def _follow(self, call: Call, result: Any) -> None:
        """What a call makes of values that have lost their history, or takes theirs from."""
        if call.func == _REQUIRES_GRAD or call.name in _OF_NO_VALUE:
            if call.args and call.name != "register_hook":
                self._leaf(call.args[0], self._values.of(call))
            return
        node = node_of(result) if isinstance(result, torch.Tensor) else None
        if node is not None and node.name().startswith(_FLAT) and len(self._flat) < _CUTS:
            self._flat[sequence_number(node)] = user_stack(sys._getframe(3))
        of, lost = self._values.of(call), frozenset[Stack]()
        given = [one for one in arguments(call.args, call.kwargs) if one.requires_grad]
        if given and not call.name.endswith("_like") and not call.name.startswith("new_"):
            makes = [
                one for one in (result if isinstance(result, (tuple, list)) else (result,)) if _has_no_history(one)
            ]
            outside = self._modes[-1] if self._modes and not torch.is_grad_enabled() else ()
            stack = (
                (outside or user_stack(sys._getframe(3)))
                if makes and not any(one is made for made in makes for one in given)
                else ()
            )
            self._note(self._lost, stack, [node_of(one) or one for one in given])
            lost = frozenset({stack} if stack else ())
        if of or lost:
            self._values.follow(result, of | lost)
        if call.kwargs.get("requires_grad"):
            self._leaf(result, of | lost)

    def _leaf(self, leaf: Any, cuts: frozenset[Stack], parameter: bool = False, stack: Stack = ()) -> None:
        stack = stack or user_stack(sys._getframe(4))
        if stack and isinstance(leaf, torch.Tensor) and is_trained_leaf(leaf) and len(self._made) < _LEAVES:
            read = tuple(self._numbers.items())[::-1]
            self._made[id(leaf)] = _Leaf(weakref.ref(leaf), stack, cuts, read, parameter)

    def leaf_made(self, leaf: torch.Tensor, of: Any, stack: Stack, parameter: bool) -> None:
        """``nn.Parameter(...)`` or ``Variable(...)`` has been called, which no function mode sees."""
        with unobserved():
            cuts = self._values.of_tensors([of]) if isinstance(of, torch.Tensor) else frozenset[Stack]()
            if isinstance(of, torch.Tensor) and of.requires_grad and node_of(of) is not None:
                self._note(self._lost, stack, [node_of(of)])
                cuts |= {stack}
            self._leaf(leaf, cuts, parameter, stack)

    def without_grad(self, stack: Stack) -> None:
        """Nothing goes back through what has run at this place."""
        self._note(self._without_grad, stack, None)

    # ---- backwards

    def backward_begins(self, passing: Passing) -> None:
        if self._used:
            with unobserved():
                numbers = {sequence_number(node) for node in passing.nodes}
            leaves = {*map(id, passing.leaves)}
            for used in self._used.values():
                given = (one in numbers if isinstance(one, int) else id(one()) in leaves for one in used.by)
                used.fed = used.fed or any(given)
        if self._made:
            made = [known for leaf in passing.leaves if (known := self._made.get(id(leaf))) and known.leaf() is leaf]
            alone = len(made) == len(passing.leaves)
            self._made |= {id(known.leaf()): replace(known, went_back=True, alone=alone) for known in made}
        self._values.forget_gone()

    def flat(self, passing: Passing) -> tuple[set[int], Stack]:
        """The leaves, by id, that nothing but zeros gets to in a backward, and the last place where it becomes so."""
        if not self._flat:  # a graph is walked over
            return set(), ()
        todo, reached = [*map(node_of, passing.roots)], set[Any]()
        while todo:
            node = todo.pop()
            if node is not None and node not in reached and not node.name().startswith(_FLAT):
                reached.add(node)
                todo += [into for into, _ in node.next_functions]
        sloped = {id(leaf) for node in reached if (leaf := getattr(node, "variable", None)) is not None}
        numbers = {sequence_number(node) for node in passing.nodes - reached}
        return {*map(id, passing.leaves)} - sloped, self._flat.get(max(numbers & self._flat.keys(), default=0), ())

    def backward_ends(self, passing: Passing, result: Any) -> None:
        # Who keeps the graph, as a rule, only looks at the gradient.
        asked = passing.event.asked and not passing.event.retained and result is not None
        gradients = [one for one in values_of(result) if one is not None] if asked else []
        if gradients and not any(one.requires_grad for one in gradients):
            self._note(self._gradients, self._run.here(), [*map(node_of, passing.roots)])

    # ---- the places

    def places(self, parameters: list[torch.Tensor]) -> list[Place]:
        """Where the path to some parameters may have been cut."""
        wanted = {id(p) for p in parameters}
        fed = [(stack, used) for stack, used in self._used.items() if used.fed]
        found = [Place(s) for s, used in fed if _reaches([used.of], wanted) and not _reaches(used.beside, wanted)]
        ends = [one for one in self._made.values() if one.went_back and _other(one.leaf, wanted)]
        found += map(Place, self._led_to(ends, wanted))
        for one in ends:
            if one.alone and not one.cuts:
                found += [Place(s) for s, node in one.read if _reaches([node], wanted)][:1]
        found += [Place(stack) for stack, node in self._detached.items() if _reaches([node], wanted)]
        found += [Place(stack) for stack, nodes in self._gradients.items() if _reaches(nodes, wanted)]
        found += [
            Place(one.stack, [one.leaf]) for one in ends if one.parameter
        ]  # it may be these that get the gradients
        found += [Place(stack) for stack, leaves in self._copied.items() if any(id(p) in wanted for p in leaves)]
        found += map(Place, self._without_grad)
        return [*found, *(Place(one.stack, [one.leaf]) for one in ends if one.alone)]

    def _led_to(self, ends: list[_Leaf], wanted: set[int]) -> list[Stack]:
        """Where what some leaves were made of was cut, the last place first; a block, which may be meant, behind all calls. Of a
        parameter, as which all values of a net may be kept, only where that was made."""
        cuts = {stack for one in ends for stack in one.cuts if not one.parameter or stack == one.stack}
        found = [s for s, given in reversed(self._lost.items()) if s in cuts and _reaches(given, wanted)]
        return sorted(found, key=self._without_grad.__contains__)


def _has_no_history(made: Any) -> bool:
    return isinstance(made, torch.Tensor) and node_of(made) is None


def _other(leaf: weakref.ref[torch.Tensor], wanted: set[int]) -> bool:
    return (one := leaf()) is not None and id(one) not in wanted


def _reaches(roots: Iterable[Any], wanted: set[int]) -> bool:
    """Whether some nodes, or leaves, are or go back to one of the leaves (by id)."""
    seen: set[Any] = set()
    todo = [*roots]
    while todo and len(seen) < _NODES:
        node = todo.pop()
        if node is None or node in seen:
            continue
        if isinstance(node, torch.Tensor):
            if id(node) in wanted:
                return True
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) in wanted:
            return True
        todo.extend(following for following, _ in node.next_functions)
    return False
