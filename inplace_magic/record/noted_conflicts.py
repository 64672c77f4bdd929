"""The conflicts of a run, each noted once.

One line that saves in a loop of a thousand steps is one conflict.
"""

from __future__ import annotations

from typing import Any

from ..torch_private import current_node, sequence_number
from . import evidence
from .author import Author
from .observed import UNKNOWN_VERSION, LiveConflict, LiveWrite, Saved, Stack, differ


class NotedConflicts:
    """Filled by the recorder; ``found`` is read when the run is over."""

    def __init__(self) -> None:
        self.found: list[LiveConflict] = []
        self._known: set[tuple[Any, ...]] = set()

    def between(
        self,
        kind: evidence.Kind,
        saved: Saved,
        need: evidence.Backward,
        write: LiveWrite | None,
        node: Any = None,
    ) -> LiveConflict | None:
        """A backward needs what is no longer as it was saved; None if that is noted already."""
        # Two layers of batch norm may save and write at the same lines, each its own statistics.
        module = write.module if write is not None and kind == "silent" else None
        if not self._first(kind, saved.stack, write.stack if write is not None else None, need.stack, module):
            return None
        conflict = LiveConflict(kind)
        conflict.saved, conflict.need, conflict.write, conflict.freed = saved, need, write, saved.freed
        node = node or current_node()
        if node is not None:
            conflict.node, conflict.stale = node.name(), sequence_number(node)
        conflict.value = saved.alias
        if kind == "modified" and saved.value is not None:
            conflict.effective = differ(saved.value, saved.alias)
        self.found.append(conflict)
        return conflict

    def gone_through_again(self, need: evidence.Backward, freed: evidence.Backward, node: int, made: Stack) -> None:
        """A backward needs a node that saves nothing, and has been freed; unless it also needs what was saved there."""
        alike = (c.need.stack for c in self.found if c.kind == "second_backward" and c.need is not None)
        if need.stack not in alike:
            conflict = LiveConflict("second_backward")
            conflict.need, conflict.freed, conflict.stale, conflict.made = need, freed, node, made
            self.found.append(conflict)

    def refused(self, family: str, operation: str, message: str, author: Author, clock: int) -> LiveConflict:
        """torch has refused a call."""
        conflict = LiveConflict("refused")
        conflict.family, conflict.message = family, message
        conflict.write = LiveWrite(author.stack, clock, operation, author.origin, UNKNOWN_VERSION)
        conflict.write.module = author.module
        if self._first(family, author.stack):
            self.found.append(conflict)
        return conflict

    def once(self, conflict: LiveConflict) -> None:
        """Drops a refused read where another one is noted of the same views, after the same write."""

        def read(one: LiveConflict) -> tuple[object, ...]:
            return one.kind, one.family, one.made, one.write and one.write.stack

        if any(read(one) == read(conflict) for one in self.found if one is not conflict):
            self.found = [one for one in self.found if one is not conflict]

    def without_places(
        self, family: evidence.Kind, need: evidence.Backward, message: str, write: LiveWrite | None = None
    ) -> None:
        """torch has refused a backward of a graph that was made before the run, or where what is saved is not seen."""
        conflict = LiveConflict(family)
        conflict.need, conflict.message, conflict.known, conflict.family = need, message, False, family
        conflict.write = write
        self.found.append(conflict)

    def _first(self, *same: Any) -> bool:
        if same in self._known:
            return False
        self._known.add(same)
        return True
