"""Gradients that are kept in a list and are one tensor, which holds the last of them.

``kept.append(w.grad)`` keeps the tensor into which the next backward adds, unless ``w.grad`` was let go in between; and
``autograd.grad(y, x, seed)`` gives the very seed where the graph only hands it on, which is then filled for the next row.

Proof: a list holds the tensor where it did when that was last written, and once more.
"""

from __future__ import annotations

import gc
import sys
import weakref
from dataclasses import dataclass, field
from typing import Any

import torch

from ...storage import storage_key
from ...torch_private import unobserved
from .. import evidence
from ..observed import LiveWrite, Saved
from .events import Detector, Passing, Run

_LOOKS = 16  # in one run: each goes through all objects that there are
_LEAVES = 512
_FRESH = 3  # references to a gradient that autograd has just made: the result's, the loop's, the call's


@dataclass
class _Gradient:
    """A tensor that was given as a gradient. ``held``: by list, where that held it when it was first written so."""

    tensor: weakref.ref[torch.Tensor]
    saved: Saved
    need: evidence.Backward
    held: dict[int, tuple[set[int], LiveWrite]] = field(default_factory=dict)


class KeptGradients(Detector):
    """Follows them."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._known: dict[int, _Gradient] = {}  # by storage
        self._leaves: list[weakref.ref[torch.Tensor]] = []
        self._passes = 0
        self._looks = 0
        self._alone = _references_of_a_gradient()

    # ---- which may be kept

    def backward_begins(self, passing: Passing) -> None:
        self._passes += 1
        with unobserved():
            for reference in self._leaves:
                leaf = reference()
                gradient = leaf.grad if leaf is not None else None
                if gradient is not None and sys.getrefcount(gradient) > self._alone:
                    known = self._follow(gradient, passing.event)
                    if known is not None:  # the backward adds to it
                        self._written(known, LiveWrite(self.run.here(), self.run.tick(), "backward", "user", 0))
            if self._passes & (self._passes - 1) == 0:  # the same ones again, in a training loop
                self._leaves = [weakref.ref(leaf) for leaf in passing.leaves[:_LEAVES]]

    def backward_ends(self, passing: Passing, result: Any) -> None:
        for gradient in result if isinstance(result, (tuple, list)) else ():
            if isinstance(gradient, torch.Tensor) and sys.getrefcount(gradient) > _FRESH:
                self._follow(gradient, passing.event)

    def _follow(self, gradient: torch.Tensor, need: evidence.Backward) -> _Gradient | None:
        with unobserved():
            key = storage_key(gradient)
            known = self._known.get(key or 0)
            if key is None or self._looks >= _LOOKS:
                return None
            if known is None or known.tensor() is not gradient:
                saved = Saved(gradient, (), self.run.tick())
                saved.lost = True  # its value is of no use
                self.run.remember(saved)
                known = self._known[key] = _Gradient(weakref.ref(gradient), saved, need)
        return known

    # ---- the proof

    def logs(self, key: int, write: LiveWrite) -> None:
        known = self._known.get(key)
        if known is not None:
            self._written(known, write)

    def steps(self, optimizer: torch.optim.Optimizer) -> None:
        self._look_at_all()

    def ends(self) -> None:
        self._look_at_all()
        self._known.clear()

    def _look_at_all(self) -> None:
        for known in tuple(self._known.values()):
            if known.held:
                self._written(known, None)

    def _written(self, known: _Gradient, write: LiveWrite | None) -> None:
        tensor = known.tensor()
        if tensor is None or self._looks >= _LOOKS:
            return
        self._looks += 1
        lists = [one for one in gc.get_referrers(tensor) if type(one) is list]
        for one in lists:
            places = {i for i, item in enumerate(one) if item is tensor}
            before = known.held.get(id(one))  # of another list, it may be, that is gone
            if before is not None and places > before[0]:
                self._report(known, before[1])
                return
            if write is not None and (before is None or not places >= before[0]):
                known.held[id(one)] = places, write

    def _report(self, known: _Gradient, write: LiveWrite) -> None:
        self._known.pop(known.saved.key or 0, None)
        write.how = "shared"
        conflict = self.run.conflict("silent", Saved(known.saved.alias, (), self.run.tick()), known.need, write)
        if conflict is not None:
            conflict.certain = True


def _references_of_a_gradient() -> int:
    """What sys.getrefcount says of a gradient that nobody but its leaf holds."""
    with unobserved():
        leaf = torch.zeros(1, requires_grad=True)
        leaf.grad = torch.zeros(1)
        gradient = leaf.grad
        return sys.getrefcount(gradient)
