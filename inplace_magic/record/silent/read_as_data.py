"""Leaves that an optimizer steps and a forward reads without their history alone, so that no gradient ever reaches them: as
``.data``, or by ``torch.tensor([a, b])`` or ``detach`` of what is computed of them. The last may be meant so, and counts as no
wrong gradient.

Nothing is raised: ``step`` passes over what has no gradient, and trains the other leaves of its optimizer.

Proof: what was read went, by operations that grad mode saw, into the graph of a backward; the optimizer stepped after that,
by the gradients of others; the leaf never had one while it was watched, and nothing has written into it.
"""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Iterable, Mapping
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
from .nodes import computed, is_trained_leaf

_LOOKS = 8  # at the tensors that one line makes
_PASSES = 8  # steps of others, behind which what no step is there for is forgotten
_WAYS_OUT = frozenset({"detach", "item", "tolist", "numpy"})  # ways out of a graph that a person has asked for

_Key = tuple[Stack, frozenset[int]]  # the line, and the ids of the leaves


@dataclass
class _Read:
    """Leaves that a line read so, by their ids, as far as nothing has trained them.

    ``detached``: in a way in which people also cut on purpose. ``nodes``: numbers of the nodes that the values went into.
    ``steps``: how many came after that and left all of the leaves alone.
    """

    stack: Stack
    leaves: dict[int, weakref.ref[torch.Tensor]]
    detached: bool
    nodes: set[int] = field(default_factory=set)
    reached: evidence.Backward | None = None
    need: evidence.Backward | None = None  # the backward behind which a step has passed over them
    passed: weakref.ref[torch.Tensor] | None = None  # one of those that it passed over
    steps: int = 0

    @property
    def alive(self) -> list[torch.Tensor]:
        return [leaf for ref in self.leaves.values() if (leaf := ref()) is not None]


class ReadAsData(Detector):
    """Follows what is computed of the values."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._reads: dict[_Key, _Read] = {}
        self._settled: dict[int, weakref.ref[torch.Tensor]] = {}  # leaves that something has trained
        self._forgotten = set[_Key]()
        self._values = Followed[_Key]()
        self._read_now = frozenset[_Key]()  # by the call under way
        self._looks: Counter[Stack] = Counter()

    def ends(self) -> None:
        for read in self._reads.values():
            if read.need is not None and read.passed is not None:
                write = LiveWrite(
                    read.stack, self.run.tick(), "detach" if read.detached else "data", "user", 0, "as_data"
                )
                self._note_proven(write, read.need, value=read.passed(), kind="detached" if read.detached else "silent")
        self._reads.clear()
        self._values.clear()

    # ---- what is read so, and where it goes

    def calls(self, call: Call) -> None:
        self._read_now = frozenset()
        if call.func in (DATA_GET, torch.tensor) or call.name == "detach":
            if torch.is_grad_enabled() and called_by_user():
                self._read(call, user_stack(sys._getframe(1)))
        elif self._reads:
            written = call.args[:1] if call.func == DATA_SET else call.written
            keys = {storage_key(one) for one in written if isinstance(one, torch.Tensor)} - {None}
            if keys:
                self._settle(leaf for read in self._reads.values() for leaf in read.alive if storage_key(leaf) in keys)

    def _read(self, call: Call, stack: Stack) -> None:
        given = next(iter([*call.args[:1], *call.kwargs.values()]), None)
        with unobserved():
            of_leaf = isinstance(given, torch.Tensor) and not computed(given)
            self._looks[stack] += not of_leaf  # a graph is walked over
            leaves = _leaves(call) if self._looks[stack] <= _LOOKS else []
        unsettled = {id(leaf): weakref.ref(leaf) for leaf in leaves if not _is_known(self._settled, leaf)}
        key = stack, frozenset(map(id, leaves))
        if unsettled and key not in self._forgotten:
            known = self._reads.get(key)
            if known is None or len(known.alive) < len(known.leaves):
                detached = call.name == "detach" or (call.func == DATA_GET and not of_leaf)
                self._reads[key] = _Read(stack, unsettled, detached)
                self.run.curious.add(self)
            self._read_now = frozenset({key})

    def called(self, call: Call, result: Any) -> None:
        if not self._reads or not torch.is_grad_enabled() or (call.name in _WAYS_OUT and not self._read_now):
            return
        of = self._read_now | self._values.of(call)
        for node in self._values.follow(result, of) if of else ():
            with unobserved():
                number = sequence_number(node)
            for key in of & self._reads.keys() if number else ():
                self._reads[key].nodes.add(number)

    def _forget(self, keys: list[_Key]) -> None:
        """No call is asked about any more for the sake of these: of what a teacher gives, say, whom no optimizer steps."""
        self._forgotten.update(keys)
        self._reads = {key: read for key, read in self._reads.items() if key not in self._forgotten}
        self._rest()

    def _settle(self, leaves: Iterable[torch.Tensor]) -> None:
        """Nothing is to be said of these leaves any more."""
        settled = {id(leaf): weakref.ref(leaf) for leaf in leaves}
        self._settled |= settled
        for key, read in [*self._reads.items()]:
            if settled.keys() & read.leaves.keys():
                read.leaves = {one: ref for one, ref in read.leaves.items() if one not in settled}
                if read.passed is not None and id(read.passed()) in settled:
                    read.need = read.passed = None
                if not read.leaves:
                    del self._reads[key]
        self._rest()

    def _rest(self) -> None:
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
            # Of what is gone the proof is complete, or never will be.
            self._reads = {key: read for key, read in self._reads.items() if read.need is not None or read.alive}
            self._values.forget_gone()

    def steps(self, optimizer: torch.optim.Optimizer) -> None:
        with unobserved():
            stepped = [p for group in optimizer.param_groups for p in group["params"]]
            fed = [p for p in stepped if not _is_known(self._settled, p) and p.grad is not None]
            self._settle(fed)
            if not self._reads:
                return
            held = {id(p): p for p in stepped}
            trains = bool(fed) or any(p.grad is not None for p in stepped)
            for read in self._reads.values() if trains else ():
                passed = [held[one] for one, ref in read.leaves.items() if one in held and held[one] is ref()]
                if passed and read.reached is not None:
                    read.need, read.passed = read.reached, weakref.ref(passed[0])
                elif not passed and read.need is None and read.detached:
                    read.steps += 1
            self._forget([key for key, read in self._reads.items() if read.steps > _PASSES])


def _is_known(table: Mapping[int, weakref.ref[torch.Tensor]], leaf: torch.Tensor) -> bool:
    known = table.get(id(leaf))
    return known is not None and known() is leaf


def _leaves(call: Call) -> list[torch.Tensor]:
    """The leaves that a call reads without their history: a leaf itself, those of a result, those of what becomes a new tensor."""
    found: list[torch.Tensor] = []
    todo: list[Any] = [*call.args[:1], *call.kwargs.values()]
    while todo:
        one = todo.pop()
        if isinstance(one, torch.Tensor):
            found += [one] if computed(one) or is_trained_leaf(one) else []
        elif isinstance(one, (list, tuple)):
            todo += one
    if found and (call.func is torch.tensor or any(map(computed, found))):
        return graph_of(found)[0]
    return found
