"""A cell or a file as a document: a person's text, in views that are Python.

A cell's text is not always Python: line magics, shell escapes, ``%%time`` on top. Two views of it keep every line
where the user sees it: ``Document.python`` for parsing (columns kept as well), and ``Document.runnable`` for running.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, TypeVar

from ..diagnosis import shown_path
from .lines import lines_of
from .location import TIMED

# Lines that reach outside and bring nothing back, so that a replay may leave them out.
_LEFT_OUT = re.compile(r"(\s*)get_ipython\(\)\.(?:system\(|run_line_magic\('(?:pip|conda|mamba|uv|autograd_fix)')")
# Cell magics that run their body as if they were not there, so that a replay may leave them out.
TRANSPARENT_MAGICS = frozenset({"time", "timeit", "capture", "prun", "autograd_check"})
_CELL_MAGIC = re.compile(r"%%(\w+)")
_LINE_TIME = re.compile(r"(\s*)%time (?=\S)")
_PARSE_FLAGS = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


D = TypeVar("D", bound="Document")


@dataclass(frozen=True)
class Document:
    """A text of the user's: a cell or a file. ``modules``: what its names that stand for modules stand for.

    ``number`` is a cell's execution count. Files have numbers as well, which come before those of all cells and are
    never shown.
    """

    number: int
    raw: str
    modules: Mapping[str, str] = field(repr=False, compare=False, default_factory=dict, kw_only=True)

    @cached_property
    def lines(self) -> list[str]:
        return lines_of(self.raw)

    @cached_property
    def runnable(self) -> str:
        """The text as it runs, on the lines where the user sees it."""
        return self.raw

    @cached_property
    def replayable(self) -> str:
        """What a replay runs of it."""
        return self.runnable

    @cached_property
    def python(self) -> str:
        """The text with everything that is not Python put out of the way, line by line and column by column."""
        return "\n".join(self.lines) + "\n"

    @property
    def magic(self) -> str | None:
        """The name of the cell magic on top, if there is one."""
        return None

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
        """Whether the whole text is indented; IPython takes a cell's indent away before it compiles."""
        return _indented(self.lines)

    def with_text(self: D, raw: str) -> D:
        return replace(self, raw=raw)

    def __getstate__(self) -> dict[str, Any]:
        """For another process: nothing of what has been worked out."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def line_of(self, filename: str, lineno: int) -> int:
        """The line a person sees for a frame's line in code that was compiled under ``filename``."""
        return lineno

    @property
    def replay_name(self) -> str:
        """The file name under which a replay compiles this text."""
        raise NotImplementedError


@dataclass(frozen=True)
class CellSource(Document):
    """One executed cell. ``transform`` is IPython's own transformation of what was typed."""

    transform: Callable[[str], str] = field(repr=False, compare=False, default=lambda text: text)

    @cached_property
    def _leading(self) -> int:
        """How many blank lines stand on top; IPython drops them, so frames count without them."""
        return _blank_on_top(self.lines)

    @property
    def magic(self) -> str | None:
        return next(iter(self.magics), None)

    @cached_property
    def magics(self) -> list[str]:
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
        return self._leading + sum(magic in TRANSPARENT_MAGICS for magic in self.magics)

    def below(self, magic: str) -> str:
        """What this cell magic on top has to run, magics below it included, on the lines where the user sees it."""
        above = self._leading + self.magics.index(magic) + 1
        body = "\n".join(self.lines[above:]) + "\n"
        blank = _blank_on_top(lines_of(body))
        return "\n" * (above + blank) + self.transform(body)

    @cached_property
    def runnable(self) -> str:
        """The body as IPython would run it, on the lines where the user sees it."""
        body = "\n".join(self.lines[self._header :]) + "\n"
        blank = _blank_on_top(lines_of(body))
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

    @property
    def indented(self) -> bool:
        return _indented(self.lines[self._header :])

    def __getstate__(self) -> dict[str, Any]:
        """For another process, whose shell may transform cells otherwise: with the text that is run."""
        state = super().__getstate__()
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
            above = self._leading + 1 + (self.magics.index("time") if "time" in self.magics else 0)
            return lineno + above + _blank_on_top(self.lines[above:])
        return lineno + self._leading

    @property
    def body(self) -> tuple[str, int]:
        """What a cell magic gets as its cell, and how many lines stand above it."""
        return "\n".join(self.lines[self._header :]) + "\n", self._header

    @property
    def replay_name(self) -> str:
        return f"<replayed In[{self.number}]>"


@dataclass(frozen=True)
class FileSource(Document):
    """A source file of the user's, to be read and rewritten as if it were a cell."""

    path: str = ""

    @property
    def replay_name(self) -> str:
        return self.path

    @property
    def name(self) -> str:
        """The path as a person would write it, seen from the working directory."""
        return shown_path(self.path)


def is_cell(number: int) -> bool:
    """Whether a document's number is that of a cell: files are numbered from -1 downwards."""
    return number > 0


def _blank_on_top(lines: list[str]) -> int:
    return next((i for i, line in enumerate(lines) if line.strip()), 0)


def _indented(lines: list[str]) -> bool:
    return next((line for line in lines if line.strip()), "")[:1] in (" ", "\t")


def _parse(text: str) -> ast.Module:
    tree: ast.Module = compile(text, "<cell>", "exec", _PARSE_FLAGS, dont_inherit=True)
    return tree
