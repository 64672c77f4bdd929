"""Leaves that an optimizer steps and a forward reads without their history alone, so that no gradient ever reaches them: as
``.data``, or by ``torch.tensor([a, b])`` or ``detach`` of what is computed of them. The last may be meant so, and counts as no
wrong gradient.

Nothing is raised: ``step`` passes over what has no gradient, and trains the other leaves of its optimizer.

Proof: what was read went, by operations that grad mode saw, into the graph of a backward; the optimizer stepped after that,
by the gradients of others; the leaf never had one, and nothing has written into it.
"""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ...gradients.backward import graph_of
from ...source.location import user_stack
from ...storage import storage_key
from ...torch_private import sequence_number, unobserved
from .. import evidence
from ..observed import LiveWrite, Stack
from .aliases import DATA_GET, DATA_SET, called_by_user
from .events import Call, Detector, Passing, Run
from .followed import Followed
from .nodes import computed

_LOOKS = 8  # at the tensors that one line makes
_WAYS_OUT = frozenset({"detach", "item", "tolist", "numpy"})  # ways out of a graph that a person has asked for


@dataclass
class _Read:
    """A leaf that was read so. ``detached``: as a person cuts on purpose, too. ``nodes``: numbers of the nodes that its values
    went into.
    """

    leaf: weakref.ref[torch.Tensor]
    stack: Stack
    detached: bool
    nodes: set[int] = field(default_factory=set)
    reached: evidence.Backward | None = None
    need: evidence.Backward | None = None  # the backward behind which a step has passed over it


class ReadAsData(Detector):
    """Follows what is computed of the values."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._reads: dict[int, _Read] = {}  # by the leaf's id
        self._trained: dict[int, _Read] = {}  # the same of those that are trained: by a gradient, or by hand
        self._values = Followed[int]()  # their marks are the leaves' ids
        self._read_now = frozenset[int]()  # by the call under way
        self._looks: Counter[Stack] = Counter()

    def ends(self) -> None:
        for read in self._reads.values():
            if read.need is not None:
                self._note(read, read.need)
        self._reads.clear()
        self._values.clear()

    def _note(self, read: _Read, need: evidence.Backward) -> None:
        write = LiveWrite(read.stack, self.run.tick(), "detach" if read.detached else "data", "user", 0, "as_data")
        self._note_proven(write, need, value=read.leaf(), kind="detached" if read.detached else "silent")

    # ---- what is read so, and where it goes

    def calls(self, call: Call) -> None:
        self._read_now = frozenset()
        if call.func in (DATA_GET, torch.tensor) or call.name == "detach":
            if torch.is_grad_enabled() and called_by_user():
                self._read(call, user_stack(sys._getframe(1)))
        elif self._reads:
            for tensor in call.args[:1] if call.func == DATA_SET else call.written:
                self._drop(one for one in list(self._reads) if self._is_in(one, tensor))

    def _read(self, call: Call, stack: Stack) -> None:
        with unobserved():
            of_leaf = _is_of_leaf(call)
            self._looks[stack] += not of_leaf  # a graph is walked over
            leaves = _leaves(call) if self._looks[stack] <= _LOOKS else []
        detached = call.name == "detach" or (call.func == DATA_GET and not of_leaf)
        for leaf in leaves:
            read = self._reads[id(leaf)] if self._is_known(self._reads, leaf) else None
            goes_somewhere = read is not None and (
                read.reached is not None or bool(read.nodes)
            )  # else it was looked at
            if not goes_somewhere and not self._is_known(self._trained, leaf):
                self._reads[id(leaf)] = _Read(weakref.ref(leaf), stack, detached)
                self.run.curious.add(self)
        self._read_now = frozenset({id(leaf) for leaf in leaves} & self._reads.keys())

    def called(self, call: Call, result: Any) -> None:
        if not self._reads or not torch.is_grad_enabled() or (call.name in _WAYS_OUT and not self._read_now):
            return
        of = self._read_now | self._values.of(call)
        for node in self._values.follow(result, of) if of else ():
            with unobserved():
                number = sequence_number(node)
            for one in of & self._reads.keys() if number else ():
                self._reads[one].nodes.add(number)

    def _is_in(self, one: int, tensor: Any) -> bool:
        read = self._reads[one]
        leaf = read.leaf()
        if leaf is None:
            return read.need is None  # else the proof is complete: nothing can train it any more
        return isinstance(tensor, torch.Tensor) and storage_key(tensor) == storage_key(leaf)

    @staticmethod
    def _is_known(table: Mapping[int, _Read], leaf: torch.Tensor) -> bool:
        known = table.get(id(leaf))
        return known is not None and known.leaf() is leaf

    def _drop(self, trained: Iterator[int]) -> None:
        for one in trained:
            self._trained[one] = self._reads.pop(one)
        if not self._reads:
            self._values.clear()
            self.run.curious.discard(self)

    # ---- the proof

    def backward_begins(self, passing: Passing) -> None:
        if self._reads:
            numbers = {sequence_number(node) for node in passing.nodes}
            for read in self._reads.values():
                if read.nodes & numbers:
                    read.reached = passing.event
                read.nodes -= numbers
            self._values.forget_gone()

    def steps(self, optimizer: torch.optim.Optimizer) -> None:
        if not self._reads:
            return
        with unobserved():
            stepped = {id(p): p for group in optimizer.param_groups for p in group["params"]}
            fed = {one for one, p in stepped.items() if p.grad is not None}
            self._drop(one for one in list(self._reads) if one in fed)
            for one, read in self._reads.items() if fed else ():
                if read.reached is not None and one in stepped and stepped[one] is read.leaf():
                    read.need = read.reached


def _is_of_leaf(call: Call) -> bool:
    """Whether ``.data`` or ``detach`` is asked of a leaf itself."""
    return call.func is not torch.tensor and not computed(call.args[0])


def _leaves(call: Call) -> list[torch.Tensor]:
    """The leaves that a call reads without their history: a leaf itself, those of a result, those of what becomes a new tensor."""
    found: list[torch.Tensor] = []
    todo: list[Any] = [*call.args[:1], *call.kwargs.values()]
    while todo:
        one = todo.pop()
        if isinstance(one, torch.Tensor):
            found += [one] if computed(one) or _is_leaf(one) else []
        elif isinstance(one, (list, tuple)):
            todo += one
    if _is_of_leaf(call):
        return found
    return graph_of(found)[0] if found else []


def _is_leaf(tensor: torch.Tensor) -> bool:
    """Whether it requires grad and nothing has made it; not where torch refuses to tell."""
    try:
        return tensor.requires_grad and tensor.is_leaf
    except RuntimeError:
        return False
