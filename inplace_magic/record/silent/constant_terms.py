"""Terms of a loss that ``torch.tensor`` has made of values with a history: they have none, and train nothing.

    balance = torch.tensor([block.loss for block in blocks]).mean()
    (task + 0.1 * balance).backward()

Proof: what was made of the copy is only added to what goes back, so that no gradient would be another one without it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ...source.location import user_stack
from ...torch_private import sequence_number, unobserved
from ..observed import LiveWrite, Stack
from .aliases import called_by_user
from .events import Call, Detector, Passing, Run
from .followed import Followed

_SUMS = frozenset({"add", "add_", "sub", "sub_", "rsub", "__radd__", "__rsub__", "__iadd__", "__isub__"})
# Operations that are linear in what has a history, if it is one value alone.
_LINEAR = ("Add", "Sub", "Rsub", "Neg", "Mul", "Div", "Sum", "Mean")


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
            stack = user_stack(sys._getframe(1))
            if copied and stack not in self._told:
                self._copied_now = frozenset({stack})
                self.run.curious.add(self)

    def called(self, call: Call, result: Any) -> None:
        if self not in self.run.curious or not torch.is_grad_enabled():
            return
        of = self._copied_now | self._values.of(call)
        for node in self._values.goes_on(result, of) if of else ():
            with unobserved():
                number = sequence_number(node)
            if number and call.name in _SUMS:
                self._sums[number] = of

    def backward_begins(self, passing: Passing) -> None:
        if not self._sums:
            return
        with unobserved():
            numbers = {sequence_number(node) for node in _linear(passing.roots)}
            gone = {sequence_number(node) for node in passing.nodes}
        for number in numbers & self._sums.keys():
            for stack in self._sums[number] - self._told:
                self._told.add(stack)
                write = LiveWrite(stack, self.run.tick(), "tensor", "user", 0)
                write.how = "as_term"
                self._note_proven(write, passing.event)
        self._sums = {number: stacks for number, stacks in self._sums.items() if number not in gone}
        self._values.forget_gone()


def _has_history(data: Any) -> bool:
    """Whether there is a tensor with a history in what becomes a new one, at whatever depth."""
    if isinstance(data, (list, tuple)):
        return any(map(_has_history, data))
    return isinstance(data, torch.Tensor) and data.requires_grad


def _linear(roots: Sequence[torch.Tensor]) -> Iterator[Any]:
    """The nodes on the way from what goes back that only add, or scale, one value each."""
    todo = [root.grad_fn for root in roots]
    seen = set[Any]()
    while todo:
        node = todo.pop()
        if node is None or node in seen or not node.name().startswith(_LINEAR):
            continue
        seen.add(node)
        yield node
        inner = [one for one, _ in node.next_functions if one is not None]
        if len(inner) == 1 or node.name().startswith(("Add", "Sub", "Rsub")):
            todo += inner
