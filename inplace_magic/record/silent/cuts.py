"""Where the path to an optimizer's parameters may have been cut, the likeliest first.

By what a backward went through: a number with which a loss was computed (``loss - value.item() * reward``); what went into its
graph, or a new leaf that it ended in was computed of, where a call, or a block without grad mode, gave it without its history
(``argmax``, ``>``, ``detach``, ``torch.tensor(net(x))``); numbers whose values, sum or mean such leaves have. Else a gradient by
``autograd.grad`` that is not differentiable itself, parameters made anew of the old ones, a new leaf that it began at, and what
is known to end a path (a checkpoint with reentry).
"""

from __future__ import annotations

import contextlib
import math
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
from ..operations import arguments, tensors_in
from .aliases import DATA_GET, GRAD_GET, NUMBERS, called_by_user
from .events import Call, Passing, Run
from .followed import Followed, without_history
from .nodes import has_plain_values, is_trained_leaf, node_number, node_of, reached

_CUTS = 64  # places that are remembered
_READ = 7  # numbers of one line, beside the last
_NODES = 2_000  # of one graph that is walked over
_LEAVES = 256  # that are made, half of them parameters at most
_NUMBERS = 64  # of one place, and in one leaf, that are compared
_REQUIRES_GRAD = torch.Tensor.requires_grad.__set__  # type: ignore[attr-defined]
_GIVE_THEMSELVES = frozenset({"requires_grad_", "retain_grad"})
_EXPORTS = frozenset({"tolist", "numpy"})
# The nodes that give nothing but zeros.
_FLAT = frozenset({
    "RoundBackward0", "RoundBackward1", "FloorBackward0", "CeilBackward0", "TruncBackward0", "SignBackward0",
})  # fmt: skip

Leaves = frozenset[int]  # by id


@dataclass(frozen=True)
class Place:
    """Where a path may have been cut; ``made``: the leaves that were made there and get gradients instead. ``proven``: what was
    cut there went to a loss, and hardly on purpose."""

    stack: Stack
    made: Sequence[weakref.ref[torch.Tensor]] = ()
    proven: bool = False


@dataclass
class _Used:
    """The leaves ``of`` what was read as a number, those of what stood ``beside`` it in a computation, and what that has given:
    by the number of a node, or a leaf. ``fed``: a backward has gone through that."""

    of: Leaves
    beside: Leaves
    by: list[int | weakref.ref[torch.Tensor]] = field(default_factory=list)
    fed: bool = False


@dataclass
class _Numbers:
    """What one place has read as numbers since the last backward, and the leaves that they came of."""

    leaves: Leaves
    values: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class _Leaf:
    """A leaf that a line made, of what was cut at ``cuts``, or of numbers that were ``read`` before, the first of them first.
    ``went_back``: a backward has ended in it, ``alone``: in nothing but leaves that were made so, ``is_root``: and begun."""

    leaf: weakref.ref[torch.Tensor]
    stack: Stack
    cuts: frozenset[Stack]
    read: tuple[tuple[Stack, Leaves], ...] = ()
    parameter: bool = False
    went_back: bool = False
    alone: bool = False
    is_root: bool = False


class Cuts:
    """Follows what a run computes of values that have lost their history. It keeps no graph: of a value, the leaves it came of."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.clear()

    def clear(self) -> None:
        self._used: dict[Stack, _Used] = {}
        self._numbers: dict[Stack, _Numbers] = {}
        self._lost: dict[Stack, Leaves] = {}  # what other calls were given with a history, and gave without one
        self._gradients: dict[Stack, Leaves] = {}  # what gradients were the gradients of
        self._meant: set[Stack] = set()  # those of them that may be: a detach, a block without grad mode
        self._ended: dict[Stack, None] = {}  # where nothing goes back through what has run
        self._made: dict[int, _Leaf] = {}
        self._into: dict[int, frozenset[Stack]] = {}  # what was cut at these places went into a node, by number
        self._went_back: dict[Stack, int] = {}  # of these, what a backward has gone through, and which one last
        self._backward = 0
        self._flat: dict[int, Stack] = {}  # by the number of a node that gives nothing but zeros
        self.root: Stack = ()  # where the root of the last backward was made, if that is a leaf
        self._values = Followed[Stack](discrete=True)
        self._read: list[Stack] = []  # where the line that runs has read numbers
        self._given: list[torch.Tensor] | None = None  # beside a number, to the call under way
        self._reading: _Numbers | None = None  # what the call under way reads

    def ended(self, stack: Stack) -> None:
        """Nothing goes back through what has run at this place."""
        if stack and len(self._ended) < _CUTS:
            self._ended[stack] = None

    @property
    def on_a_line(self) -> bool:
        """Whether the line that runs has read a number."""
        return bool(self._read)

    @staticmethod
    def _note(table: dict[Stack, Leaves], stack: Stack, roots: Iterable[Any]) -> None:
        """Notes what leaves some nodes, or leaves, go back to; once for a place, for a graph is walked over."""
        if stack and stack not in table and len(table) < _CUTS:
            table[stack] = _leaves_of(roots)

    # ---- calls

    def calls(self, call: Call) -> None:
        if self._read:
            self._look_for_number(call)
        if not call.args or not isinstance(call.args[0], torch.Tensor):
            return
        if (call.func in NUMBERS or call.name in _EXPORTS) and called_by_user():
            with unobserved():
                self._read_as_number(call.args[0], user_stack(sys._getframe(2)))

    def _read_as_number(self, tensor: torch.Tensor, stack: Stack) -> None:
        """A number that is read of a history, or of what has lost one: that was cut there."""
        node = node_of(tensor) or (tensor if is_trained_leaf(tensor) else None)
        if node is None:
            stack = next(iter(self._values.of_tensors([tensor])), ())
        elif stack:
            self._read = [*self._read[-_READ:], stack]
        if stack and stack not in self._numbers and len(self._numbers) < _CUTS:
            leaves = self._lost.get(stack, frozenset()) if node is None else _leaves_of([node])
            self._numbers[stack] = _Numbers(leaves)
        self._reading = self._numbers.get(stack)

    def _look_for_number(self, call: Call) -> None:
        """Whether the line that has read numbers computes with one what has a history; until another line makes a call."""
        here, there = user_stack(sys._getframe(3)), self._read[0]
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
                beside = _leaves_of(node_of(one) for one in given)
                for stack in self._read:
                    if (known := self._numbers.get(stack)) is not None and len(self._used) < _CUTS:
                        used = self._used.setdefault(stack, _Used(known.leaves, beside))
                        used.by.append(node_number(result) or weakref.ref(result))
                        del used.by[:-_CUTS]
        reading, self._reading = self._reading, None
        if call.func in NUMBERS or call.name in _EXPORTS:
            if reading is not None:
                with unobserved():
                    reading.values = [*reading.values, *_as_numbers(call.args[0])][-_NUMBERS:]
        elif call.func != GRAD_GET:
            with unobserved():
                self._follow(call, result)

    def _follow(self, call: Call, result: Any) -> None:
        """What a call makes of values that have lost their history, or takes theirs from."""
        if call.func == _REQUIRES_GRAD or call.name in _GIVE_THEMSELVES:
            leaf = call.args[0] if call.args else None
            self._leaf(leaf, self._values.of_tensors([leaf] if isinstance(leaf, torch.Tensor) else []))
            return
        of = self._values.of(call)
        node = node_of(result) if isinstance(result, torch.Tensor) else None
        if node is not None and node.name() in _FLAT:
            self._flat = dict([*self._flat.items()][1 - _CUTS :])
            self._flat[sequence_number(node)] = user_stack(sys._getframe(3))
        if lost := without_history(call, result):
            block = self._run.block()
            stack = block or user_stack(sys._getframe(3))
            self._meant |= {stack} if block or call.name == "detach" or call.func == DATA_GET else set()
            self._note(self._lost, stack, (node_of(one) or one for one in lost))
            of |= {stack} if stack else set()
        for into in self._values.follow([*tensors_in(result), *call.written], of) if of else ():
            if (number := sequence_number(into)) and len(self._into) < _LEAVES:
                self._into[number] = of
        if call.kwargs.get("requires_grad"):
            self._leaf(result, of)

    def leaf_made(self, leaf: torch.Tensor, of: Any, stack: Stack, parameter: bool) -> None:
        """``nn.Parameter(...)`` or ``Variable(...)`` has been called, which no function mode sees."""
        with unobserved():
            cuts = self._values.of_tensors([of]) if isinstance(of, torch.Tensor) else frozenset[Stack]()
            if isinstance(of, torch.Tensor) and of.requires_grad and node_of(of) is not None:
                self._note(self._lost, stack, [node_of(of)])
                cuts |= {stack}
            self._leaf(leaf, cuts, parameter, stack)

    def _leaf(self, leaf: Any, cuts: frozenset[Stack], parameter: bool = False, stack: Stack = ()) -> None:
        stack = stack or user_stack(sys._getframe(4))
        if not stack or not isinstance(leaf, torch.Tensor) or not is_trained_leaf(leaf):
            return
        if len(self._made) >= _LEAVES // (2 if parameter else 1):
            self._made = {key: known for key, known in self._made.items() if known.leaf() is not None}
        if len(self._made) < _LEAVES // (2 if parameter else 1):
            read = () if cuts or parameter else self._read_for(leaf)
            self._made[id(leaf)] = _Leaf(weakref.ref(leaf), stack, cuts, read, parameter)

    def _read_for(self, leaf: torch.Tensor) -> tuple[tuple[Stack, Leaves], ...]:
        """Where numbers were read that a leaf may be made of: it is one of them, their sum or their mean."""
        values = _as_numbers(leaf) if self._numbers else []

        def has(numbers: list[float]) -> bool:
            sums = [sum(numbers), sum(numbers) / len(numbers)] if numbers else []
            return any(math.isclose(one, value, rel_tol=1e-6) for one in (*numbers, *sums) for value in values)

        return tuple((stack, known.leaves) for stack, known in self._numbers.items() if has(known.values))

    # ---- backwards

    def backward_begins(self, passing: Passing) -> None:
        self._backward += 1
        if self._used:
            numbers = {sequence_number(node) for node in passing.nodes}
            leaves = {*map(id, passing.leaves)}
            for used in self._used.values():
                given = (one in numbers if isinstance(one, int) else id(one()) in leaves for one in used.by)
                used.fed = used.fed or any(given)
        if self._into:
            numbers = {sequence_number(node) for node in passing.nodes}
            gone = [number for number in self._into if number in numbers]
            stacks = (stack for number in gone for stack in self._into.pop(number))
            self._went_back |= dict.fromkeys(stacks, self._backward)
        self.root = ()
        if self._made:
            made = [known for leaf in passing.leaves if (known := self._made.get(id(leaf))) and known.leaf() is leaf]
            alone, roots = len(made) == len(passing.leaves), {*map(id, passing.roots)}
            self._made |= {
                (key := id(known.leaf())): replace(known, went_back=True, alone=alone, is_root=key in roots)
                for known in made
            }
            self.root = next((known.stack for known in made if id(known.leaf()) in roots), ())
        for one in self._numbers.values():
            one.values = []
        self._values.forget_gone()

    def flat(self, passing: Passing) -> tuple[set[int], Stack]:
        """The leaves, by id, that nothing but zeros gets to in a backward, and the last place where it becomes so."""
        if not self._flat:  # a graph is walked over
            return set(), ()
        steep = reached(map(node_of, passing.roots), lambda node: node.name() not in _FLAT)
        sloped = {id(leaf) for node in steep if (leaf := getattr(node, "variable", None)) is not None}
        numbers = {sequence_number(node) for node in passing.nodes - steep}
        return {*map(id, passing.leaves)} - sloped, self._flat.get(max(numbers & self._flat.keys(), default=0), ())

    def backward_ends(self, passing: Passing, result: Any) -> None:
        # Who keeps the graph, as a rule, only looks at the gradient.
        asked = passing.event.asked and not passing.event.retained and result is not None
        gradients = [one for one in values_of(result) if one is not None] if asked else []
        if gradients and not any(one.requires_grad for one in gradients):
            stack = self._run.here()
            self._note(self._gradients, stack, map(node_of, passing.roots))
            if stack in self._gradients:
                self._values.follow(gradients, frozenset({stack}))

    # ---- the places

    def places(self, parameters: list[torch.Tensor]) -> list[Place]:
        """Where the path to some parameters may have been cut."""
        wanted = {id(p) for p in parameters}
        ends = self._ends(wanted)
        found = self._into_losses(wanted, ends)
        found += [Place(stack) for stack, leaves in self._gradients.items() if leaves & wanted]
        # It may be these that get the gradients.
        found += [Place(one.stack, [one.leaf]) for one in ends if one.parameter and self._comes_of(one, wanted)]
        found += [Place(one.stack, [one.leaf]) for one in ends if one.is_root]
        return [*found, *map(Place, self._ended)]

    def cut_off(self, leaf: torch.Tensor) -> list[Place]:
        """Where what is computed of one leaf was cut on its way to a loss, or else has left torch, the last place first."""
        wanted = {id(leaf)}
        numbers = (stack for stack, one in reversed(self._numbers.items()) if one.leaves & wanted)
        return [*self._into_losses(wanted, self._ends(wanted)), *map(Place, numbers)]

    def _ends(self, wanted: set[int]) -> list[_Leaf]:
        """The leaves that were made, and in which a backward has ended, but for those that are asked about."""
        return [one for one in self._made.values() if one.went_back and id(one.leaf()) not in wanted]

    def _into_losses(self, wanted: set[int], ends: list[_Leaf]) -> list[Place]:
        """The cuts behind which the values have gone to a loss."""
        used = (pair for pair in self._used.items() if pair[1].fed)
        found = [Place(stack) for stack, one in used if one.of & wanted and not one.beside & wanted]
        found += (Place(stack, proven=stack not in self._may_be_meant) for stack in self._led_to(ends, wanted))
        for one in (one for one in ends if one.alone):
            found += [Place(stack, proven=True) for stack, leaves in one.read if leaves & wanted]
        return found

    @property
    def _may_be_meant(self) -> set[Stack]:
        """A detach, a block without grad mode, a gradient that is not differentiable."""
        return {*self._meant, *self._gradients}

    def _comes_of(self, leaf: _Leaf, wanted: set[int]) -> bool:
        return any(self._lost.get(stack, frozenset()) & wanted for stack in leaf.cuts)

    def _led_to(self, ends: list[_Leaf], wanted: set[int]) -> list[Stack]:
        """Where what some leaves were made of, or what went into a graph without a history, was cut, the last place first;
        what may be meant behind all others. Of a parameter, as which all values of a net may be kept, only
        where that was made."""
        cuts = {stack for one in ends for stack in one.cuts if not one.parameter or stack == one.stack}
        # What may be meant is, where it went to another loss than the last one.
        meant = self._may_be_meant
        cuts |= {stack for stack, one in self._went_back.items() if one == self._backward or stack not in meant}
        lost = [*reversed(self._lost.items()), *reversed(self._gradients.items())]
        return sorted((stack for stack, leaves in lost if stack in cuts and leaves & wanted), key=meant.__contains__)


def _as_numbers(tensor: torch.Tensor) -> list[float]:
    """The values of a small tensor; none of any other."""
    small = tensor.numel() <= _NUMBERS and tensor.is_floating_point() and has_plain_values(tensor)
    with contextlib.suppress(RuntimeError):  # there are tensors that torch reads no values of
        return tensor.detach().flatten().tolist() if small else []
    return []


def _leaves_of(roots: Iterable[Any]) -> Leaves:
    """The ids of the leaves that some nodes go back to, and of those that stand for themselves among them."""
    seen, found, todo = set[Any](), set[int](), [*roots]
    while todo and len(seen) < _NODES:
        node = todo.pop()
        if isinstance(node, torch.Tensor):
            found.add(id(node))
        elif node is not None and node not in seen:
            seen.add(node)
            leaf = getattr(node, "variable", None)
            found |= {id(leaf)} if leaf is not None else set()
            todo += [into for into, _ in node.next_functions]
    return frozenset(found)
