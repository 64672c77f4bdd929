"""Writes that go on with the history of earlier iterations: ``x += self.offset`` on the data itself. Each backward goes through
all that has been written before, by what a step has updated since.

Nothing is raised where nothing that was saved is gone: a sum saves nothing.

Proof: a leaf takes part in the graph of one backward both before a step that updated it, in what such a write has made, and
after it.
"""

from __future__ import annotations

import functools
import sys
import weakref
from typing import Any

import torch

from ...torch_private import next_sequence_number, sequence_number, unobserved
from ..author import Author, author_at
from ..observed import LiveWrite, Stack
from .events import Call, Detector, Passing, Run
from .nodes import node_of

_WRITES = 1_024  # that are kept in mind


class EarlierIterations(Detector):
    """Remembers what tracked writes have made, as long as what they wrote is there."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._writes: dict[int, tuple[weakref.ref[torch.Tensor], LiveWrite]] = {}  # by the number of the node they made
        self._stepped: dict[
            int, tuple[weakref.ref[torch.Tensor], int]
        ] = {}  # when each leaf was stepped last, by its id
        self._told: set[Stack] = set()

    def calls(self, call: Call) -> None:
        if call.written and torch.is_grad_enabled() and len(self._writes) < _WRITES:
            author = author_at(sys._getframe(1))
            if author.origin == "user" and author.stack not in self._told:
                note = functools.partial(self._note, weakref.ref(call.written[0]), call.name, author)
                self.run.after_operation(note)

    def _note(self, target: weakref.ref[torch.Tensor], name: str, author: Author) -> None:
        with unobserved():
            tensor = target()
            node = node_of(tensor) if tensor is not None else None
            number = sequence_number(node) if node is not None else 0
        if number:
            write = LiveWrite(author.stack, self.run.tick(), name, author.origin, 0)
            write.how = "carried"
            self._writes[number] = target, write

    def steps(self, optimizer: torch.optim.Optimizer) -> None:
        self._writes = {number: one for number, one in self._writes.items() if one[0]() is not None}
        if self._writes:
            with unobserved():
                now = next_sequence_number()
                fed = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
            self._stepped |= {id(p): (weakref.ref(p), now) for p in fed}

    def backward_begins(self, passing: Passing) -> None:
        if not self._writes or not self._stepped:
            return
        with unobserved():
            earlier = self._goes_through_earlier(passing)
        if earlier is not None and earlier.stack not in self._told:
            self._told.add(earlier.stack)
            self._note_proven(earlier, passing.event)

    def _goes_through_earlier(self, passing: Passing) -> LiveWrite | None:
        """The last of the writes before a step by which a leaf takes part that takes part behind that step as well."""
        made: dict[int, list[int]] = {}  # by a leaf's id the numbers of the nodes that read it
        for node in passing.nodes:
            for following, _ in node.next_functions:
                leaf: Any = getattr(following, "variable", None)
                known = self._stepped.get(id(leaf)) if leaf is not None else None
                if known is not None and known[0]() is leaf:
                    made.setdefault(id(leaf), []).append(sequence_number(node))
        for one, numbers in made.items():
            stepped = self._stepped[one][1]
            before = [number for number in numbers if number < stepped]
            written = [number for number in before if number in self._writes]
            if written and len(before) < len(numbers):
                return self._writes[max(written)][1]
        return None
