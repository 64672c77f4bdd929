"""Leaves that nobody holds, and whose gradient is looked for at a result: ``w = torch.randn(3, requires_grad=True) * 0.1``.

A backward adds to the leaf behind ``w``, which has no name. ``w.grad`` stays None, and a step by hand passes over it; torch
warns of the reading and goes on.

Proof: the gradient of a result is read by the person's own code, and is None; all leaves that the result comes from have one by
then; nothing refers to these (a reference run holds leaves itself, there no name leads to them), or to a value between. Not of
what a backward begins at, nor where ``autograd.grad`` is asked for the gradient of the result.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...gradients.backward import graph_of
from ...session.user_objects import walk
from ...source.location import user_frames, user_stack
from ...torch_private import unobserved
from .. import evidence
from ..observed import LiveWrite, Stack
from .aliases import GRAD_GET, called_by_user
from .events import Call, Detector, Passing, Run
from .nodes import has_hooks, node_of

_NODES = 32  # of the graph of a result, at most
_WANTED = 256  # that are known, and there still or not
_LOOKS = 16  # at the results that one line reads
_BACKWARDS = 8  # of which the roots are known


class LostLeaves(Detector):
    """Listens for readings of ``.grad``."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._passed: dict[Any, tuple[evidence.Backward, list[weakref.ref[torch.Tensor]]]] = {}  # by the stack
        self._wanted: dict[int, weakref.ref[torch.Tensor]] = {}  # of which ``autograd.grad`` was asked
        self._asked: tuple[torch.Tensor, Stack, evidence.Backward] | None = None  # by the call under way
        self._looks: Counter[Stack] = Counter()
        self._of_nobody = 0
        self._all = True  # lines that have gone back are known

    def begins(self) -> None:
        with unobserved(), torch.inference_mode(False), torch.enable_grad():
            result = torch.zeros(1, requires_grad=True).view(1)
            self._of_nobody = _references(graph_of([result])[0])

    def backward_begins(self, passing: Passing) -> None:
        if passing.event.asked:
            if len(self._wanted) > _WANTED:
                self._wanted = {key: ref for key, ref in self._wanted.items() if ref() is not None}
            self._wanted |= {id(one): weakref.ref(one) for one in passing.wanted}
            return
        self._passed.pop(passing.event.stack, None)
        self._passed[passing.event.stack] = passing.event, [*map(weakref.ref, passing.roots)]
        if len(self._passed) > _BACKWARDS:
            self._passed.pop(next(iter(self._passed)))
            self._all = False

    def calls(self, call: Call) -> None:
        self._asked = None
        if not self._passed or not reads_gradient_of_result(call.func, call.args) or not called_by_user():
            return
        result, stack = call.args[0], user_stack(sys._getframe(1))
        self._looks[stack] += 1
        if self._looks[stack] > _LOOKS:
            return
        with unobserved():
            need = self._lost(result)
        if need is not None:
            self._asked = result, stack, need
            self.run.curious.add(self)

    def called(self, call: Call, result: Any) -> None:
        asked, self._asked = self._asked, None
        self.run.curious.discard(self)
        if asked is not None and result is None:
            value, stack, need = asked
            write = LiveWrite(stack, self.run.tick(), "grad", "user", 0, "of_result")
            write.module = value  # one line may read the gradients of several
            self._note_proven(write, need, value=value)

    def _lost(self, result: torch.Tensor) -> evidence.Backward | None:
        """The backward that has given a gradient to the leaves of a result, where nothing leads to them."""
        known = self._wanted.get(id(result))
        roots = [ref() for _, refs in self._passed.values() for ref in refs]
        if result.retains_grad or any(one is result for one in (*roots, known and known())):
            return None
        leaves, size, nodes = graph_of([result])
        if not leaves or size > _NODES or any(map(_is_used, leaves)):
            return None
        if not self.run.policy.reference and _references(leaves) > self._of_nobody:
            return None
        own, between = {*map(id, leaves)}, nodes - {node_of(result)}
        for frame in user_frames(sys._getframe(1)):
            for _, value in walk(frame.f_locals, unnamed=True):
                beside = isinstance(value, torch.Tensor) and value is not result
                if id(value) in own or (beside and node_of(value) in between):
                    return None
        return self._reaching(own)

    def _reaching(self, leaves: set[int]) -> evidence.Backward | None:
        """The latest backward that went through leaves, by their ids: the only one, or one whose root is there still."""
        for event, refs in [*self._passed.values()][::-1]:
            roots = [root for ref in refs if (root := ref()) is not None]
            if (self._all and len(self._passed) == 1) or {*map(id, graph_of(roots)[0])} & leaves:
                return event
        return None


def reads_gradient_of_result(func: Callable[..., Any], args: Sequence[Any]) -> bool:
    """Whether a call reads ``.grad`` of what is no leaf."""
    if len(args) != 1 or func != GRAD_GET:
        return False
    with unobserved(), contextlib.suppress(Exception):  # of a class of tensors that says otherwise what made it
        return node_of(args[0]) is not None
    return False


def _is_used(leaf: torch.Tensor) -> bool:
    """Whether a leaf has no gradient, or has hooks, to which it is handed."""
    return leaf.grad is None or has_hooks(leaf)


def _references(leaves: list[torch.Tensor]) -> int:
    """The most that refer to one of the leaves, which this list does in any case."""
    return max(map(sys.getrefcount, leaves))
