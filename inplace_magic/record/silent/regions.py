"""What a stretch of a forward reads that it has not made itself: if that changes, running it again gives something else.

A checkpoint's forward runs again in backward; so does, in part, that of a reversible block, whose Function keeps nothing
and computes its input once more from its output and from weights. The tensors that such a stretch reads count as saved.
"""

from __future__ import annotations

import torch

from ...storage import storage_key
from ...torch_private import unobserved
from ..observed import Saved, Stack
from ..operations import arguments, tensors_in
from .events import Call, Run

_OVERWRITES = frozenset({"copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_", "set_"})


class Region:
    """One such stretch. ``reads`` are the tensors that it read and had not made, by storage; ``stack`` is its call."""

    def __init__(self, run: Run, stack: Stack) -> None:
        self._run = run
        self.stack = stack
        self.begun = self.ended = run.tick()
        self.reads: dict[int, Saved] = {}
        self._made: set[int] = set()
        self._kept: list[torch.Tensor] = []  # what it made lives until it is over, so that no address is used twice

    def calls(self, call: Call) -> None:
        """It is about to make a call."""
        with unobserved():
            over = {id(tensor) for tensor in overwritten(call)}
            for tensor in arguments(call.args, call.kwargs):
                key = storage_key(tensor)
                if key is None or key in self._made or key in self.reads or id(tensor) in over:
                    continue
                saved = self.reads[key] = Saved(tensor, self.stack, self._run.tick())
                saved.foreign = True
                self._run.remember(saved)
                self._run.sample(saved)

    def called(self, result: object) -> None:
        """It has made it."""
        with unobserved():
            for tensor in tensors_in(result):
                key = storage_key(tensor)
                if key is not None and key not in self.reads and key not in self._made:
                    self._made.add(key)
                    self._kept.append(tensor.detach())

    def close(self) -> None:
        """It is over."""
        self.ended = self._run.tick()
        self._kept.clear()
        self._made.clear()


def overwritten(call: Call) -> list[torch.Tensor]:
    """The tensors that a call fills without reading them."""
    out = call.kwargs.get("out")
    if out is not None:
        return list(tensors_in(out))
    first = call.args[0] if call.args else None
    return [first] if call.name in _OVERWRITES and isinstance(first, torch.Tensor) else []
