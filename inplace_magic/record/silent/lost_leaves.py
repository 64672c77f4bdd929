"""Leaves that nobody holds, and whose gradient is looked for at a result: ``w = torch.randn(3, requires_grad=True) * 0.1``.

A backward adds to the leaf behind ``w``, which has no name. ``w.grad`` stays None, and a step by hand passes over it; torch
warns of the reading and goes on.

Proof: the gradient of a result is read that nothing keeps for it (``retain_grad``), and all leaves that the result comes from
have one by then, and no object of Python's refers to them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...session.user_objects import walk
from ...source.location import user_frames, user_stack
from ...torch_private import unobserved
from .. import evidence
from ..observed import LiveWrite
from .aliases import GRAD_GET
from .events import Call, Detector, Passing, Run
from .nodes import node_of

_NODES = 32  # from a result to its leaf


class LostLeaves(Detector):
    """Listens for readings of ``.grad``."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._last: evidence.Backward | None = None

    def backward_begins(self, passing: Passing) -> None:
        self._last = self._last if passing.event.asked else passing.event

    def calls(self, call: Call) -> None:
        if self._last is None or not reads_gradient_of_result(call.func, call.args):
            return
        result = call.args[0]
        with unobserved():
            leaves = [] if result.retains_grad else _leaves_of(node_of(result))
            lost = (
                bool(leaves) and all(leaf.variable.grad is not None for leaf in leaves) and not self._are_held(leaves)
            )
        if lost:
            write = LiveWrite(user_stack(sys._getframe(1)), self.run.tick(), "grad", "user", 0, "of_result")
            self._note_proven(write, self._last, value=result)

    def _are_held(self, leaves: list[Any]) -> bool:
        """Whether the person's names lead to some of the leaves; in a run that is for real, whether anything in Python does."""
        if not self.run.policy.reference:
            return any(map(_is_referred_to, leaves))
        named = (value for frame in user_frames(sys._getframe(1)) for _, value in walk(frame.f_locals, unnamed=True))
        return bool({id(leaf.variable) for leaf in leaves} & {*map(id, named)})


def reads_gradient_of_result(func: Callable[..., Any], args: Sequence[Any]) -> bool:
    """Whether a call reads ``.grad`` of what is no leaf."""
    if len(args) != 1 or func != GRAD_GET:
        return False
    with unobserved():
        return node_of(args[0]) is not None


def _leaves_of(node: Any) -> list[Any]:
    """The nodes by which a graph ends in leaves; none of a graph that has many nodes."""
    seen: set[Any] = set()
    todo, leaves = [node], list[Any]()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if len(seen) > _NODES:
            return []
        if hasattr(node, "variable"):
            leaves.append(node)
        todo += [following for following, _ in node.next_functions]
    return leaves


def _is_referred_to(leaf: Any) -> bool:
    """What torch itself keeps of a leaf is told from one to which nothing else refers."""
    with torch.enable_grad():
        of_nobody: Any = node_of(torch.zeros(1, requires_grad=True) * 1).next_functions[0][0]
    return sys.getrefcount(leaf.variable) > sys.getrefcount(of_nobody.variable)
