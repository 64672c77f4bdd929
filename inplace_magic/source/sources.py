"""The documents of a session, with the way from a code object to one of them."""

from __future__ import annotations

import linecache
import os
import re
import types
from collections.abc import Mapping
from typing import Any

from ..diagnosis import Place
from .apart import does, in_file
from .document import Document, FileSource
from .editor import Code
from .location import TIMED, SourceRange

_NUMBERED_NAME = re.compile(r"<ipython-input-(\d+)-")


class Sources:
    """The cells of a session by execution count, and the way from a code object to one of them."""

    def __init__(
        self,
        cells: Mapping[int, Document],
        names: Mapping[str, int],
        current: int | None,
        nested: Mapping[str, tuple[int, int]] | None = None,
        timed: Mapping[tuple[object, ...], int] | None = None,
    ) -> None:
        """``nested`` gives, for names under which a cell magic compiled a cell's body, that cell and the lines above it.

        ``timed`` gives, for what functions do that ``%%time`` compiled, all under one name, the cell.
        """
        self.cells = dict(cells)
        self.current = current
        self._names = dict(names)
        self._nested = dict(nested or {})
        self._timed = dict(timed or {})
        self._files = {cell.path: number for number, cell in self.cells.items() if isinstance(cell, FileSource)}
        self._spots: dict[tuple[int, int], tuple[types.CodeType, SourceRange]] = {}
        self._codes: dict[int, Code] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Code objects are of this process, and what has been parsed is parsed again.
        return {**vars(self), "_spots": {}, "_codes": {}}

    def with_texts(self, texts: Mapping[int, str]) -> Sources:
        """The same session with some cells rewritten."""
        cells = {n: (cell.with_text(texts[n]) if n in texts else cell) for n, cell in self.cells.items()}
        rewritten = Sources(cells, self._names, self.current, self._nested, self._timed)
        rewritten._codes = {n: code for n, code in self._codes.items() if n not in texts}
        return rewritten

    def code(self, number: int | None) -> Code | None:
        """The parsed text of a document, the same for whoever asks; None where there is none, or it does not parse."""
        document = self.cells.get(number) if number is not None else None
        if number is None or document is None or document.tree is None:
            return None
        if number not in self._codes:
            self._codes[number] = Code(document)
        return self._codes[number]

    def cell_of(self, code: types.CodeType) -> int | None:
        """The execution count of the cell that some code was compiled from, or None if it is no cell."""
        filename = code.co_filename
        if TIMED.match(filename):
            return self.current if code.co_name == "<module>" else self._timed.get(does(code), self.current)
        if filename in self._nested:
            return self._nested[filename][0]
        if match := re.match(r"<replayed In\[(\d+)\]>", filename):
            return int(match.group(1))
        number = self._names.get(filename)
        if not self._names and (match := _NUMBERED_NAME.match(filename)):
            number = int(match.group(1))
        if number is None and self._files and not filename.startswith("<"):
            number = self._files.get(os.path.realpath(filename))
        return number if number in self.cells else None

    def spot(self, code: types.CodeType, lasti: int) -> SourceRange:
        """Where the instruction at ``lasti`` of ``code`` stands."""
        # By identity: code of two cells may be equal, and to compare it takes longer than to look.
        known = self._spots.get((id(code), lasti))
        if known is None:
            known = self._spots[id(code), lasti] = (code, self._spot(code, lasti))
        return known[1]

    def _spot(self, code: types.CodeType, lasti: int) -> SourceRange:
        code = in_file(code)
        positions = list(code.co_positions())
        line, end_line, column, end_column = (
            positions[lasti // 2] if 0 <= lasti // 2 < len(positions) else (code.co_firstlineno,) + (None,) * 3
        )
        cell = self.cell_of(code)
        line = line or code.co_firstlineno
        if cell is not None:
            nested = self._nested.get(code.co_filename)
            seen = self.cells[cell].line_of(code.co_filename, line) if nested is None else line + nested[1]
            end_line = None if end_line is None else seen + end_line - line
            line = seen
            timed = TIMED.match(code.co_filename) and self.cells[cell].magic is None
            if timed or self.cells[cell].indented:
                column = end_column = end_line = None
        return SourceRange(cell, code.co_filename, code.co_qualname, line, end_line, column, end_column)

    def place(self, spot: SourceRange) -> Place:
        """The spot as a person reads it."""
        if spot.cell is None:
            line = _line(spot.filename, spot.line)
            return Place(None, spot.line, line.strip(), spot.filename, spot.function, _columns(spot, line))
        cell = self.cells[spot.cell]
        lines = cell.lines
        line = lines[spot.line - 1] if 0 < spot.line <= len(lines) else ""
        text, columns = line.strip(), _columns(spot, line)
        function = None if spot.function == "<module>" else spot.function
        if isinstance(cell, FileSource):
            return Place(None, spot.line, text, filename=cell.path, function=function, columns=columns)
        return Place(spot.cell, spot.line, text, function=function, columns=columns)


def _line(filename: str, number: int) -> str:
    """A line of what is in no document. What a replay has compiled once more has another count in its name than here."""
    if match := _NUMBERED_NAME.match(filename):
        same = (name for name in linecache.cache if _NUMBERED_NAME.sub("", name, 1) == filename[match.end() :])
        filename = next(same, filename)
    return linecache.getline(filename, number)


def _columns(spot: SourceRange, line: str) -> tuple[int, int] | None:
    """Where a range stands in its first line without the indent, in characters; to the line's end if it goes on."""
    if spot.column is None or spot.end_column is None:
        return None
    data, indent = line.encode(), len(line) - len(line.lstrip())
    start = len(data[: spot.column].decode(errors="replace")) - indent
    end = len(line.strip())
    if spot.end_line in (None, spot.line):
        end = min(end, len(data[: spot.end_column].decode(errors="replace")) - indent)
    return (start, end) if 0 <= start < end else None
