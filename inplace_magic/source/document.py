"""Cells and files as documents: from code objects to the text a person wrote, and from it to Python that can be run.

A cell's text is not always Python: line magics, shell escapes, ``%%time`` on top. Two views of it keep every line
where the user sees it: ``Cell.python`` for parsing (columns kept as well), and ``Cell.runnable`` for running.
"""

from __future__ import annotations

import ast
import contextlib
import linecache
import os
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from ..diagnosis import Place, shown_path
from .lines import lines_of
from .location import TIMED, SourceRange

# Lines that reach outside and bring nothing back, so that a replay may leave them out.
_LEFT_OUT = re.compile(r"(\s*)get_ipython\(\)\.(?:system\(|run_line_magic\('(?:pip|conda|mamba|uv|autograd_fix)')")
# Cell magics that run their body as if they were not there, so that a replay may leave them out.
TRANSPARENT_MAGICS = frozenset({"time", "timeit", "capture", "prun", "autograd_check"})
_CELL_MAGIC = re.compile(r"%%(\w+)")
_LINE_TIME = re.compile(r"(\s*)%time (?=\S)")
_NUMBERED_NAME = re.compile(r"<ipython-input-(\d+)-")
_PARSE_FLAGS = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


@dataclass(frozen=True)
class Cell:
    """One executed cell: its execution count, the text as typed and the text after IPython's own transformation."""

    number: int
    raw: str
    transform: Callable[[str], str] = field(repr=False, compare=False, default=lambda text: text)
    modules: Mapping[str, str] = field(repr=False, compare=False, default_factory=dict)  # what names stand for modules

    @cached_property
    def lines(self) -> list[str]:
        return lines_of(self.raw)

    @cached_property
    def _leading(self) -> int:
        """How many blank lines stand on top; IPython drops them, so frames count without them."""
        return next((i for i, line in enumerate(self.lines) if line.strip()), 0)

    @cached_property
    def magic(self) -> str | None:
        """The name of the cell magic on top, if there is one."""
        return next(iter(self._magics), None)

    @cached_property
    def _magics(self) -> list[str]:
        """The cell magics on top, one below the other; what stands below one that is not transparent is its own affair."""
        found: list[str] = []
        for line in self.lines[self._leading :]:
            match = _CELL_MAGIC.match(line)
            if match is None or not TRANSPARENT_MAGICS.issuperset(found):
                break
            found.append(match.group(1))
        return found

    @cached_property
    def _header(self) -> int:
        """Lines above the body: blank ones, and the cell magics that only wrap the body."""
        return self._leading + sum(magic in TRANSPARENT_MAGICS for magic in self._magics)

    def below(self, magic: str) -> str:
        """What this cell magic on top has to run, magics below it included, on the lines where the user sees it."""
        above = self._leading + self._magics.index(magic) + 1
        body = "\n".join(self.lines[above:]) + "\n"
        blank = next((i for i, line in enumerate(lines_of(body)) if line.strip()), 0)
        return "\n" * (above + blank) + self.transform(body)

    @cached_property
    def runnable(self) -> str:
        """The body as IPython would run it, on the lines where the user sees it."""
        body = "\n".join(self.lines[self._header :]) + "\n"
        blank = next((i for i, line in enumerate(lines_of(body)) if line.strip()), 0)
        return "\n" * (self._header + blank) + self.transform(body)

    @cached_property
    def replayable(self) -> str:
        """What a replay runs: the body without shell escapes and package installs whose output nobody reads."""
        lines = lines_of(self.runnable, keepends=True)
        return "".join(
            match.group(1) + "pass" + line[len(line.rstrip("\r\n")) :] if (match := _LEFT_OUT.match(line)) else line
            for line in lines
        )

    @cached_property
    def python(self) -> str:
        """The text with everything that is not Python put out of the way, line by line and column by column."""
        transformed = lines_of(self.runnable)
        view = []
        for i, line in enumerate(self.lines):
            if i < self._header:
                view.append("")
            elif i < len(transformed) and transformed[i] == line:
                view.append(line)
            elif match := _LINE_TIME.match(line):
                view.append(f"{match.group(1)}if 1: {line[match.end() :]}")  # as wide as `%time `
            elif "get_ipython()" in (transformed[i] if i < len(transformed) else "get_ipython()"):
                view.append(re.match(r"\s*", line).group() + "pass")  # type: ignore[union-attr]
            else:
                view.append(line)
        return "\n".join(view) + "\n"

    @cached_property
    def tree(self) -> ast.Module | None:
        """The parsed cell, or None where it cannot be parsed."""
        try:
            if self.indented:
                # The indent belongs to the text that is edited, so it stays, below a line that allows it.
                tree = _parse("if 1:\n" + self.python)
                ast.increment_lineno(tree, -1)
                return ast.Module(tree.body[0].body, [])  # type: ignore[attr-defined]
            return _parse(self.python)
        except (SyntaxError, ValueError):
            return None

    @property
    def indented(self) -> bool:
        """Whether the whole cell is indented; IPython takes the indent away before it compiles."""
        line = next((line for line in self.lines[self._header :] if line.strip()), "")
        return line[:1] in (" ", "\t")

    def with_text(self, raw: str) -> Cell:
        return replace(self, raw=raw)

    def __getstate__(self) -> dict[str, Any]:
        """For another process, whose shell may transform cells otherwise: with the text that is run."""
        state = {one.name: getattr(self, one.name) for one in fields(self)}
        with contextlib.suppress(Exception):  # what a person's own transformer raises
            state["runnable"] = self.runnable
        return state

    def line_of(self, filename: str, lineno: int) -> int:
        """The line a person sees for a frame's line in code that IPython compiled under ``filename``."""
        if filename == self.replay_name:
            return lineno
        if TIMED.match(filename):
            if self.magic is None:  # `%time statement`: one line of code, somewhere in the cell
                timed = [i + 1 for i, line in enumerate(self.lines) if _LINE_TIME.match(line)]
                return timed[0] if timed else lineno
            return lineno + self._leading + 1 + (self._magics.index("time") if "time" in self._magics else 0)
        return lineno + self._leading

    @property
    def body(self) -> tuple[str, int]:
        """What a cell magic gets as its cell, and how many lines stand above it."""
        return "\n".join(self.lines[self._header :]) + "\n", self._header

    @property
    def replay_name(self) -> str:
        """The file name under which a replay compiles this cell."""
        return f"<replayed In[{self.number}]>"


@dataclass(frozen=True)
class File(Cell):
    """A source file of the user's, to be read and rewritten as if it were a cell. Its number is negative."""

    path: str = ""

    @cached_property
    def _leading(self) -> int:
        return 0  # Python keeps blank lines on top

    @cached_property
    def _magics(self) -> list[str]:
        return []

    @cached_property
    def runnable(self) -> str:
        return self.raw

    @cached_property
    def replayable(self) -> str:
        return self.raw

    @cached_property
    def python(self) -> str:
        return "\n".join(self.lines) + "\n"

    @property
    def replay_name(self) -> str:
        return self.path

    @property
    def name(self) -> str:
        """The path as a person would write it, seen from the working directory."""
        return shown_path(self.path)


def _parse(text: str) -> ast.Module:
    tree: ast.Module = compile(text, "<cell>", "exec", _PARSE_FLAGS, dont_inherit=True)
    return tree


class Sources:
    """The cells of a session by execution count, and the way from a code object to one of them."""

    def __init__(
        self,
        cells: Mapping[int, Cell],
        names: Mapping[str, int],
        current: int | None,
        nested: Mapping[str, int] | None = None,
    ) -> None:
        """``nested`` gives, for names under which a cell magic compiled the current cell's body, the lines above it."""
        self.cells = dict(cells)
        self.current = current
        self._names = dict(names)
        self._nested = dict(nested or {})
        self._files = {cell.path: number for number, cell in self.cells.items() if isinstance(cell, File)}
        self._spots: dict[tuple[int, int], tuple[types.CodeType, SourceRange]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_spots": {}}  # code objects of this process

    def with_texts(self, texts: Mapping[int, str]) -> Sources:
        """The same session with some cells rewritten."""
        cells = {n: (cell.with_text(texts[n]) if n in texts else cell) for n, cell in self.cells.items()}
        return Sources(cells, self._names, self.current, self._nested)

    def cell_of(self, filename: str) -> int | None:
        """The execution count of the cell that was compiled under ``filename``, or None if it is no cell."""
        if TIMED.match(filename) or filename in self._nested:
            return self.current
        if match := re.match(r"<replayed In\[(\d+)\]>", filename):
            return int(match.group(1))
        number = self._names.get(filename)
        if number is None and (match := _NUMBERED_NAME.match(filename)):
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
        positions = list(code.co_positions())
        line, end_line, column, end_column = (
            positions[lasti // 2] if 0 <= lasti // 2 < len(positions) else (code.co_firstlineno,) + (None,) * 3
        )
        cell = self.cell_of(code.co_filename)
        line = line or code.co_firstlineno
        if cell is not None:
            above = self._nested.get(code.co_filename)
            seen = self.cells[cell].line_of(code.co_filename, line) if above is None else line + above
            end_line = None if end_line is None else seen + end_line - line
            line = seen
            timed = TIMED.match(code.co_filename) and self.cells[cell].magic is None
            if timed or self.cells[cell].indented:
                column = end_column = end_line = None
        return SourceRange(cell, code.co_filename, code.co_qualname, line, end_line, column, end_column)

    def place(self, spot: SourceRange) -> Place:
        """The spot as a person reads it."""
        if spot.cell is None:
            line = linecache.getline(spot.filename, spot.line)
            return Place(None, spot.line, line.strip(), spot.filename, spot.function, _columns(spot, line))
        cell = self.cells[spot.cell]
        lines = cell.lines
        line = lines[spot.line - 1] if 0 < spot.line <= len(lines) else ""
        text, columns = line.strip(), _columns(spot, line)
        function = None if spot.function == "<module>" else spot.function
        if isinstance(cell, File):
            return Place(None, spot.line, text, filename=cell.path, function=function, columns=columns)
        return Place(spot.cell, spot.line, text, function=function, columns=columns)


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
