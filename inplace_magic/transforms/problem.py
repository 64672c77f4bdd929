"""One conflict to be mended, with what is known around it: evidence and text, never the shell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..record.evidence import Evidence, RecordedConflict
from ..source.editor import Code
from ..source.location import SourceRange
from ..source.sources import Sources


@dataclass(frozen=True)
class Problem:
    """One conflict to be mended, and what is known around it.

    ``sources`` hold the texts to edit (those of an earlier fix, when a fix is being extended). ``raised`` is the
    user's part of the traceback, innermost first; ``cell`` the failing cell.
    """

    family: str
    clash: RecordedConflict
    evidence: Evidence
    sources: Sources
    cell: int
    raised: tuple[SourceRange, ...] = ()

    def code(self, cell: int | None) -> Code | None:
        """The parsed text of a cell, or None where there is none (a file, a cell that does not parse)."""
        if cell is None or cell not in self.sources.cells:
            return None
        return _code(self.sources, cell)

    def codes(self) -> Iterator[Code]:
        """The parsed texts up to the failing cell, the latest first."""
        for number in sorted(self.sources.cells, reverse=True):
            if number <= self.cell and (code := self.code(number)) is not None:
                yield code

    @property
    def write_stack(self) -> tuple[SourceRange, ...]:
        return self.clash.write.stack if self.clash.write is not None else ()

    @property
    def save_stack(self) -> tuple[SourceRange, ...]:
        return self.clash.save.stack if self.clash.save is not None else ()

    @property
    def need_stack(self) -> tuple[SourceRange, ...]:
        return self.clash.need.stack if self.clash.need is not None else self.raised


_CODES: dict[tuple[object, ...], Code] = {}


def _code(sources: Sources, cell: int) -> Code | None:
    key = (cell, sources.cells[cell].raw, frozenset(sources.cells[cell].modules.items()))
    found = _CODES.get(key)
    if found is None:
        if sources.cells[cell].tree is None:
            return None
        if len(_CODES) > 64:
            _CODES.clear()
        found = _CODES[key] = Code(sources.cells[cell])
    return found
