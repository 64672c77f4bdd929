"""Leaves whose gradient the person's code reads, and that no backward has reached: what is computed of them loses its history.

Nothing is raised: ``x.grad`` is None, which is printed, or counted as no change.

Proof: ``.grad`` of a leaf that requires grad is read behind a backward, by a line that does not ask whether it is None, and is
None; values of that leaf were given without their history before (cuts.py), into the graph that went back, or out of torch.
What may be meant is a detach, a block without grad mode, and what leaves torch. No more is said where an optimizer holds
the leaf, for it is told of by what that trains.
"""

from __future__ import annotations

import dis
import itertools
import sys
import types
import weakref
from collections import Counter
from dataclasses import dataclass

import torch

from ...source.location import user_stack
from ...torch_private import unobserved
from .. import evidence
from ..observed import LiveWrite, Stack
from .aliases import GRAD_GET, called_by_user
from .cuts import Place
from .events import Call, Detector, Passing, Run
from .nodes import is_trained_leaf

_LOOKS = 8  # of one line, each of which may go over what has been cut
_READS = 64  # that are known


@dataclass(frozen=True)
class _Read:
    """A leaf whose gradient was None where it was ``read``, behind a backward, and where it was cut off."""

    leaf: weakref.ref[torch.Tensor]
    read: Stack
    place: Place
    need: evidence.Backward


class Unreached(Detector):
    """Listens for readings of ``.grad``."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._last: evidence.Backward | None = None
        self._given_up = False
        self._reads: dict[int, _Read] = {}  # by the id of the leaf
        self._looks: Counter[Stack] = Counter()

    def ends(self) -> None:
        for read in self._reads.values():
            if (leaf := read.leaf()) is None or leaf.grad is None:
                clock = self.run.tick()
                write = LiveWrite(read.place.stack, self.run.tick(), "cut", "user", 0, "unreached")
                write.module = leaf  # one line may cut several off
                kind: evidence.Kind = "silent" if read.place.proven else "detached"
                self._note_proven(write, read.need, bound=read.read, clock=clock, value=leaf, kind=kind)
        self._reads.clear()

    def backward_ends(self, passing: Passing, result: object) -> None:
        self._given_up = self._given_up or passing.given_up  # what it would have reached is not known
        if not passing.event.asked:
            self._last = None if self._given_up else passing.event

    def calls(self, call: Call) -> None:
        if call.func != GRAD_GET or self._last is None or not isinstance(leaf := call.args[0], torch.Tensor):
            return
        with unobserved():
            if not is_trained_leaf(leaf) or leaf.grad is not None or id(leaf) in self._reads or not called_by_user():
                return
            stack = user_stack(sys._getframe(1))
            self._looks[stack] += 1
            if not stack or self._looks[stack] > _LOOKS or len(self._reads) >= _READS or _asks_for_none(*stack[0]):
                return
            place = next(iter(self.run.cut_off(leaf)), None)
            if place is not None:
                self._reads[id(leaf)] = _Read(weakref.ref(leaf), stack, place, self._last)

    def steps(self, optimizer: torch.optim.Optimizer) -> None:
        for parameter in (p for group in optimizer.param_groups for p in group["params"]) if self._reads else ():
            self._reads.pop(id(parameter), None)


def _asks_for_none(code: types.CodeType, offset: int) -> bool:
    """Whether what an instruction reads is compared with None: ``if p.grad is not None``."""
    behind = itertools.dropwhile(lambda one: one.offset <= offset, dis.get_instructions(code))
    first, second = itertools.islice(itertools.chain(behind, (None, None)), 2)
    if first is None or "_NONE" in first.opname:
        return first is not None
    return first.opname == "LOAD_CONST" and first.argval is None and second is not None and second.opname == "IS_OP"
