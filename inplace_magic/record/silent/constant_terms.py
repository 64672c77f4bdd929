"""Terms of a loss that ``torch.tensor`` has made of values with a history: they have none, and train nothing.

    balance = torch.tensor([block.loss for block in blocks]).mean()
    (task + 0.1 * balance).backward()

Proof: what was made of the copy is only added to what goes back, the sum on its way to the root only scaled and added to, and
nothing else is computed of it, so that no gradient would be another one without the copy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ...source.location import user_stack
from ...torch_private import sequence_number, unobserved
from ..observed import LiveWrite, Stack
from .aliases import called_by_user
from .events import Call, Detector, Passing, Run
from .followed import Followed
from .nodes import node_of

_ADDING = frozenset({"add", "add_", "sub", "sub_", "subtract", "rsub", "__radd__", "__rsub__", "__iadd__", "__isub__"})
_SUMS = frozenset({"AddBackward0", "SubBackward0", "RsubBackward1"})
_SCALES = frozenset({"MulBackward0", "DivBackward0", "NegBackward0"})  # of one value with a history
_KEPT = 256  # sums that have not gone back
_ITEMS = 64  # of a list, that are looked at


class ConstantTerms(Detector):
    """Follows what is computed of such copies."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._values = Followed[Stack]()
        self._sums: dict[int, frozenset[Stack]] = {}  # by the number of the node that adds the copy to something
        self._told: set[Stack] = set()
        self._copied_now = frozenset[Stack]()

    def calls(self, call: Call) -> None:
        self._copied_now = frozenset()
        if call.func is torch.tensor and torch.is_grad_enabled() and called_by_user():
            with unobserved():
                copied = _has_history([*call.args[:1], call.kwargs.get("data")])
            stack = user_stack(sys._getframe(1)) if copied else ()
            if copied and stack not in self._told:
                self._copied_now = frozenset({stack})
                self.run.curious.add(self)

    def called(self, call: Call, result: Any) -> None:
        if not (self._copied_now or self._values) or not torch.is_grad_enabled():
            return
        of = self._copied_now | self._values.of(call)
        for node in self._values.follow(result, of) if of else ():
            if call.name in _ADDING and len(self._sums) < _KEPT:
                with unobserved():
                    self._sums[sequence_number(node)] = of

    def backward_begins(self, passing: Passing) -> None:
        if self._sums:
            with unobserved():
                self._look(passing)
                gone = {sequence_number(node) for node in passing.nodes}
            self._sums = {number: stacks for number, stacks in self._sums.items() if number not in gone}
        self._values.forget_gone()
        if not self._sums and not self._values:
            self.run.curious.discard(self)

    def _look(self, passing: Passing) -> None:
        linear = _reached(map(node_of, passing.roots), _adds_or_scales)
        sums = {node for node in linear if sequence_number(node) in self._sums}
        used = [into for node in passing.nodes - linear for into, _ in node.next_functions] if sums else []
        beside = _reached(used, linear.__contains__)
        for stack in frozenset[Stack]().union(*(self._sums[sequence_number(node)] for node in sums - beside)):
            if stack not in self._told:
                self._told.add(stack)
                self._note_proven(LiveWrite(stack, self.run.tick(), "tensor", "user", 0, "as_term"), passing.event)


def _has_history(data: Any) -> bool:
    """Whether there is a tensor with a history in what becomes a new one, at whatever depth."""
    if isinstance(data, (list, tuple)):
        return any(map(_has_history, data[:_ITEMS]))
    return isinstance(data, torch.Tensor) and data.requires_grad


def _reached(starts: Iterable[Any], inside: Callable[[Any], bool]) -> set[Any]:
    """Those of some nodes for which a condition holds, and what they lead to, as far as it holds."""
    todo, found = [*starts], set[Any]()
    while todo:
        node = todo.pop()
        if node is not None and node not in found and inside(node):
            found.add(node)
            todo += [into for into, _ in node.next_functions]
    return found


def _adds_or_scales(node: Any) -> bool:
    """Whether a node adds values, or scales one."""
    into = [one is not None for one, _ in node.next_functions]
    return node.name() in _SUMS or (node.name() in _SCALES and into[:1] == [True] and sum(into) == 1)
