"""Graphs that are kept although no backward needs them again: ``retain_graph=True`` for nothing, memory that grows.

Only what is certain is told. A graph that was retained and has died without another backward through it was retained
for nothing, if no graph of that line was ever gone through again. Graphs of one line that are alive together when the
watch is over, each with its own saved tensors, are memory that grows with every iteration.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable

from ..source.location import SourceRange
from .evidence import Backward
from .observed import Saved

_GROWING = 3  # graphs of one line, alive at the same time
_FOLLOWED = 64  # retained graphs that are followed at a time; of more, the first go by unjudged


class _Retained:
    """One backward that kept its graph: the saved tensors it read, as far as they live."""

    __slots__ = ("again", "saved", "spot")

    def __init__(self, spot: SourceRange, used: Iterable[Saved]) -> None:
        self.spot = spot
        self.saved = weakref.WeakSet(used)
        self.again = False


class KeptGraphs:
    """Follows what retained graphs come to while a watch lasts. It holds none of them."""

    def __init__(self) -> None:
        self._followed: list[_Retained] = []
        self._needless: dict[SourceRange, int] = {}
        self._needed: set[SourceRange] = set()

    @property
    def following(self) -> bool:
        """Whether there is a retained graph that another backward may go through."""
        return bool(self._followed)

    def passed(self, event: Backward, used: list[Saved]) -> None:
        """A backward is over, and ``used`` is what it read."""
        shared = False
        for retained in self._followed:
            if any(saved in retained.saved for saved in used):
                retained.again = shared = True
                self._needed.add(retained.spot)
        if event.retained and used and event.stack and not shared:
            self._followed.append(_Retained(event.stack[0], used))
        self._judge()

    def _judge(self) -> None:
        """Graphs that have died are judged, then released."""
        for retained in self._followed:
            if not retained.saved and not retained.again:
                self._needless[retained.spot] = self._needless.get(retained.spot, 0) + 1
        self._followed = [retained for retained in self._followed if retained.saved][-_FOLLOWED:]

    def needless(self) -> tuple[SourceRange, ...]:
        """Lines whose graphs were all retained for nothing; but for the last, which a later cell may need."""
        self._judge()
        alive: dict[SourceRange, int] = {}
        for retained in self._followed:
            alive[retained.spot] = alive.get(retained.spot, 0) + 1
        return tuple(spot for spot in self._needless if spot not in self._needed and alive.get(spot, 0) <= 1)

    def growing(self) -> dict[SourceRange, int]:
        """Lines of which several graphs are alive, none of them gone through again, and how many they are."""
        self._judge()
        alive: dict[SourceRange, int] = {}
        for retained in self._followed:
            if not retained.again:
                alive[retained.spot] = alive.get(retained.spot, 0) + 1
        return {
            spot: count
            for spot, count in alive.items()
            if count >= _GROWING and spot not in (self._needed | set(self._needless))
        }
