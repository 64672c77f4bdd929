"""Sums into which a gradient has gone after it was written.

A node that is reached in two ways gets the sum of both. The first gradient to arrive waits for the others as it is, in
the memory that others were handed as well; once the sum has been formed, no memory tells of it. In a residual block,
``x + f(x)``, a hook within ``f`` that writes what it is handed so reaches ``x`` past ``f``.

Proof: what arrives at such a node is the sum of the gradient as it was written and of what came after that, and not the
sum of the gradient as it had been handed over and the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...torch_private import unobserved
from ..observed import LiveWrite, Saved
from .events import Passing, Run
from .second_run import near

_SIBLINGS = 64  # that are looked at for one write, the nearest first

Place = tuple[Any, int]  # a node, and which of its gradients
_HANDS_ON = "AddBackward0"  # gives both operands the very tensor that it got


@dataclass(frozen=True)
class WrittenGradient:
    """A gradient that was handed to ``node`` and written there. ``now`` is that memory, ``before`` what it held."""

    node: Any
    write: LiveWrite
    now: torch.Tensor
    before: torch.Tensor


class Sums:
    """What arrives at the nodes of one backward."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._passing: Passing | None = None
        self._came: dict[Place, list[tuple[int, torch.Tensor]]] = {}  # what nodes gave for a place, and when
        self._above: dict[Any, list[Any]] = {}
        self._heard: set[Any] = set()  # nodes whose results are noted
        self._followed: set[tuple[Any, int]] = set()

    def begins(self, passing: Passing, listened: type | None) -> None:
        """A backward begins. ``listened``: the kind of the nodes on which modules' hooks hang; a hook that is registered
        while they run is not called any more."""
        self._passing = passing
        for node in passing.nodes if listened is not None else ():
            if type(node) is listened:
                self._hear(node)

    def ends(self) -> None:
        """It is over."""
        self._passing = None
        for everything in (self._came, self._above, self._heard, self._followed):
            everything.clear()

    def follow(self, written: WrittenGradient) -> None:
        """From now on, what the gradient may have gone into is looked at."""
        assert self._passing is not None
        key = written.node, written.now.data_ptr()
        if key in self._followed:
            return
        self._followed.add(key)
        for place, handed in self._siblings(written.node):
            for producer in self._above.get(place[0], ()):
                self._hear(producer)
            hook = self._run.hook(self._arriving(place, written, handed))
            self._passing.handles.append(before_node(place[0], hook))

    def _siblings(self, node: Any) -> Iterator[tuple[Place, bool]]:
        """The places that got a gradient from a node which also leads to this one, but for those on the way to it; and
        whether it is known that both were handed the same."""
        if not self._above:
            self._look_above()
        above, todo = {node}, deque([node])
        found: dict[Place, bool] = {}
        while todo and len(found) < _SIBLINGS:
            one = todo.popleft()
            for parent in self._above.get(one, ()):
                if parent not in above:
                    above.add(parent)
                    todo.append(parent)
                handed = one is node and type(parent).__name__ == _HANDS_ON
                for place in parent.next_functions:
                    if place[0] is not None:
                        found[place] = found.get(place, False) or handed
        yield from ((place, handed) for place, handed in found.items() if place[0] not in above)

    def _look_above(self) -> None:
        assert self._passing is not None
        for node in self._passing.nodes:
            for following, _ in node.next_functions:
                if following is not None:
                    self._above.setdefault(following, []).append(node)

    def _hear(self, node: Any) -> None:
        if node in self._heard:
            return
        self._heard.add(node)

        def note(results: Sequence[torch.Tensor | None], _: Any) -> None:
            for place, result in zip(node.next_functions, results):
                if result is not None and place[0] is not None:
                    # Held itself, it would be copied into ``.grad`` rather than put there.
                    with unobserved():
                        self._came.setdefault(place, []).append((self._run.tick(), result.detach()))

        assert self._passing is not None
        self._passing.handles.append(node.register_hook(self._run.hook(note)))

    # ---- the proof

    def _arriving(self, place: Place, written: WrittenGradient, handed: bool) -> Callable[[Any], Any]:
        def look(gradients: Sequence[torch.Tensor | None]) -> tuple[torch.Tensor | None, ...] | None:
            gradient = gradients[place[1]]
            if gradient is None or self._passing is None:
                return None
            with unobserved(), torch.no_grad():
                right = self._right(place, written, gradient, handed)
            if right is None:
                return None
            self._run.conflict("silent", Saved(right, (), self._run.tick()), self._passing.event, written.write)
            if not self._run.policy.reference:
                return None
            return tuple(right if i == place[1] else g for i, g in enumerate(gradients))

        return look

    def _right(
        self, place: Place, written: WrittenGradient, gradient: torch.Tensor, handed: bool
    ) -> torch.Tensor | None:
        """What should have arrived, if what did is the sum with the written gradient."""
        later = [came for clock, came in self._came.get(place, ()) if clock > written.write.clock]
        ones = [gradient, written.now, *later]
        if not later or any(one.shape != gradient.shape or one.layout is not torch.strided for one in ones):
            return None
        if not handed and not bool(written.now.any()):  # nought says nothing of where it came from
            return None
        rest = torch.stack(later).sum(0)
        if near(gradient, rest + written.before) or not near(gradient, rest + written.now):
            return None
        return rest + written.before


def before_node(node: Any, look: Callable[[Sequence[torch.Tensor | None]], Any]) -> Any:
    """Has a node's gradients looked at before it runs, also those that ``autograd.grad`` takes from a leaf, whose node
    then does not run. The handle takes the hook off."""
    leaf = getattr(node, "variable", None)
    if leaf is None:
        return node.register_prehook(look)

    def arrived(gradient: torch.Tensor) -> torch.Tensor | None:
        settled = look((gradient,))
        return None if settled is None else settled[0]

    with unobserved():
        return leaf.register_hook(arrived)
