"""Writes that go on with the history of earlier iterations: ``x += self.offset`` on the data itself. Each backward goes through
all that has been written before, by what a step has updated since.

torch raises nothing, for a sum saves nothing that could be freed.

Proof: a write has a leaf itself for an operand, a step has updated that leaf since, and the graph of one backward reads it
both there and behind that step.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from ...torch_private import next_sequence_number, sequence_number, unobserved
from ..author import Author, author_at
from ..observed import LiveWrite, Stack
from ..operations import arguments
from .events import Call, Detector, Passing, Run
from .nodes import node_number

_WRITES = 1_024  # that are kept in mind


class EarlierIterations(Detector):
    """Remembers what tracked writes have made, as long as the tensor that they wrote into is there."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._writes: dict[int, tuple[weakref.ref[torch.Tensor], LiveWrite]] = {}  # by the number of the node they made
        # By a leaf's id when it was stepped last.
        self._stepped: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        self._told: set[Stack] = set()

    def calls(self, call: Call) -> None:
        if not call.written or not torch.is_grad_enabled() or len(self._writes) >= _WRITES:
            return
        with unobserved():
            tracked = any(one.requires_grad for one in arguments(call.args, call.kwargs))
        author = author_at(sys._getframe(1)) if tracked else None
        if author is not None and author.origin == "user" and author.stack not in self._told:
            self.run.after_operation(functools.partial(self._note, weakref.ref(call.written[0]), call.name, author))

    def _note(self, target: weakref.ref[torch.Tensor], name: str, author: Author) -> None:
        if number := node_number(target()):
            write = LiveWrite(author.stack, self.run.tick(), name, author.origin, 0, "carried")
            self._writes[number] = target, write

    def steps(self, optimizer: torch.optim.Optimizer) -> None:
        self._writes = {number: one for number, one in self._writes.items() if one[0]() is not None}
        if self._writes:
            with unobserved():
                now = next_sequence_number()
                fed = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
            self._stepped |= {id(p): (weakref.ref(p), now) for p in fed}

    def backward_begins(self, passing: Passing) -> None:
        if self._writes and self._stepped and not passing.event.limited:
            with unobserved():
                found = [*self._before_steps(passing)]
            for number in sorted(found, reverse=True):
                write = self._writes[number][1]
                if write.stack not in self._told:
                    self._told.add(write.stack)
                    self._note_proven(write, passing.event)

    def _before_steps(self, passing: Passing) -> Iterator[int]:
        """The nodes of writes that read a leaf before its last step, if the graph reads it after that step too, by number."""
        readers: dict[int, list[int]] = {}  # of each leaf
        for node in passing.nodes:
            for following, _ in node.next_functions:
                leaf: Any = getattr(following, "variable", None)
                known = self._stepped.get(id(leaf))
                if known is not None and known[0]() is leaf:
                    readers.setdefault(id(leaf), []).append(sequence_number(node))
        for leaf_id, numbers in readers.items():
            before = [number for number in numbers if number < self._stepped[leaf_id][1]]
            if len(before) < len(numbers):
                yield from (number for number in before if number in self._writes)
