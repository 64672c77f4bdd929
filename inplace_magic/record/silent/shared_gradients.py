"""Gradients that are one tensor where two are meant.

``autograd.grad(loss, [w, w])`` gives the same tensor twice, so that a write into one is made into the other; and two
leaves whose ``.grad`` was set to the same memory both add theirs to it.

Proof: the very memory. For ``grad``, a write into it; for ``.grad``, a backward that reaches both leaves.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from ...source.location import user_stack
from ...storage import storage_key
from ...torch_private import unobserved, version_of
from .. import evidence
from ..observed import LiveWrite, Saved, Stack
from .aliases import GRAD_SET
from .events import Call, Detector, Passing, Run

_KEPT = 64


class SharedGradients(Detector):
    """Follows memory that stands for two gradients."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._twice: dict[int, tuple[Saved, evidence.Backward]] = {}  # by storage
        self._set: dict[int, tuple[torch.Tensor, int, Stack]] = {}  # leaves whose .grad the user has set, and where

    # ---- one tensor given twice

    def backward_ends(self, passing: Passing, result: Any) -> None:
        if not isinstance(result, (tuple, list)):
            return
        with unobserved():
            seen: set[int] = set()
            for gradient in result:
                key = storage_key(gradient) if isinstance(gradient, torch.Tensor) else None
                if key is None or gradient is None or 0 in gradient.stride():
                    continue
                if key in seen and len(self._twice) < _KEPT and any(g is gradient for g in result):
                    saved = Saved(gradient, (), self.run.tick())
                    saved.lost = True  # its value is of no use
                    self.run.remember(saved)
                    self._twice[key] = saved, passing.event
                seen.add(key)

    def logs(self, key: int, write: LiveWrite) -> None:
        found = self._twice.pop(key, None)
        if found is not None:
            saved, need = found
            write.how = "shared"
            conflict = self.run.conflict("silent", Saved(saved.alias, (), self.run.tick()), need, write)
            if conflict is not None:
                conflict.certain = True

    # ---- .grad of two leaves in one memory

    def calls(self, call: Call) -> None:
        if call.func == GRAD_SET and len(call.args) > 1 and isinstance(call.args[1], torch.Tensor):
            if len(self._set) >= _KEPT:
                self._set.pop(next(iter(self._set)))
            self._set[id(call.args[0])] = call.args[0], self.run.tick(), user_stack(sys._getframe(1))

    def backward_begins(self, passing: Passing) -> None:
        if not self._set:
            return
        owners: dict[int, torch.Tensor] = {}
        for leaf in passing.leaves:
            with unobserved():
                gradient = leaf.grad
                key = gradient.data_ptr() if gradient is not None and gradient.layout is torch.strided else 0
            other = owners.setdefault(key, leaf) if key else leaf
            places = [self._set[id(one)][1:] for one in (leaf, other) if id(one) in self._set]
            stack = max(places, key=lambda place: place[0])[1] if places else None  # the later of the two
            if other is leaf or gradient is None or not gradient.numel() or stack is None:
                continue
            write = LiveWrite(stack, self.run.tick(), "grad", "user", version_of(gradient), "shared")
            conflict = self.run.conflict("silent", Saved(gradient, (), self.run.tick()), passing.event, write)
            if conflict is not None:
                conflict.certain = True
