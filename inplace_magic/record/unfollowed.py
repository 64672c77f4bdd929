"""Writes made where nothing is seen of what is saved, as inside ``torch.func``, which refuses to run under hooks.

torch's message is all that tells there which tensor was changed, by its shape. Where one line alone has written, and into
such a tensor or a view of one, it is that line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from ..storage import shape_of
from ..torch_private import base_of
from .author import Author
from .observed import LiveWrite

_SHAPE = re.compile(r"modified by an inplace operation: \[[\w.]+ \[([\d, ]*)\]\]")
_MOST = 1000  # writes of one run


@dataclass
class UnfollowedWrites:
    """``on`` while hooks are off. Holds no tensor."""

    on: bool = False
    _writes: list[tuple[tuple[int, ...], LiveWrite]] = field(default_factory=list)

    def begin_or_end(self, on: bool) -> None:
        self.on = on
        if on:
            self._writes.clear()

    def note(self, operation: str, author: Author, clock: int, written: Sequence[torch.Tensor]) -> None:
        for tensor in written if len(self._writes) < _MOST else ():
            base = base_of(tensor)
            write = LiveWrite(author.stack, clock, operation, author.origin, -1)
            self._writes.append((shape_of(tensor if base is None else base), write))

    def named_by(self, message: str) -> LiveWrite | None:
        """The write that a refused backward speaks of; None if it may have been another line."""
        told = _SHAPE.search(message)
        if told is None:
            return None
        shape = tuple(int(size) for size in told.group(1).split(",") if size.strip())
        if len({write.stack for _, write in self._writes}) != 1 or len(self._writes) == _MOST:
            return None
        return next((write for size, write in self._writes if size == shape), None)
