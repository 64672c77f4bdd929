"""What a shell knows of its cells: their texts, how long they took, which failed, what the front end calls them."""

from __future__ import annotations

import contextlib
import linecache
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

from ..source.apart import codes, does
from ..source.document import CellSource, Document, is_cell
from ..source.files import Files
from ..source.modules import modules_in
from ..source.sources import Sources
from .cell_texts import CellTexts, compiled_name
from .run_cell import compile_cell
from .shell import IPythonShell, Shell

_IMPORT_S = 0.002  # what a module takes to be imported, torch's among them, on a slow day


@dataclass
class Session:
    """The cells of one shell. ``texts`` holds what took the place of a cell's text when a fix was accepted."""

    shell: Shell
    seconds: dict[int, float] = field(default_factory=dict)
    busy: dict[int, float] = field(default_factory=dict)  # what those seen to begin computed, whatever else ran
    earlier: float = 0.0  # what all that ran before we could look computed, at most
    loaded: dict[int, int] = field(default_factory=dict)  # how many modules a cell imported
    failed: set[int] = field(default_factory=set)
    cell_ids: dict[int, str] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    files: Files = field(default_factory=Files)

    def __post_init__(self) -> None:
        self.run_cells = CellTexts(self._ipython)

    @property
    def _ipython(self) -> IPythonShell:
        """The shell as IPython's: what runs a script has a session that overrides what asks for more than names."""
        return cast(IPythonShell, self.shell)

    def sources(self, current: int, error: BaseException | None = None) -> Sources:
        """Every cell up to ``current`` as typed, and the way from compiled names back to them.

        No text ends with a newline, as none does in IPython's history: a fix reads the same wherever its cell's text is from.
        With them the user's files that his names lead to, or that ``error`` came through.
        """
        shell = self._ipython
        typed = self.run_cells.until(current)
        modules = modules_in(shell.user_ns)
        cells: dict[int, Document] = {
            number: CellSource(number, self.texts.get(number, raw.rstrip("\n")), shell.transform_cell, modules=modules)
            for number, raw in typed.items()
        }
        names = self._own(self.run_cells.compiled(), typed) or {
            compiled_name(shell, raw, number): number for number, raw in typed.items()
        }
        within, timed = self._nested(cells), self._timed(cells)
        cells |= self.files.documents(shell.user_ns, error, [cell.raw for cell in cells.values()])
        return Sources(cells, names, current, within, timed)

    def _own(self, names: Mapping[str, int], typed: Mapping[int, str]) -> dict[str, int]:
        """The cells by name, 0 for other texts: what ``%run`` takes from a notebook has the number of the next cell."""
        several = {number for number, times in Counter(names.values()).items() if times > 1}
        return {
            name: number if number not in several or self._reads(name, typed.get(number, "")) else 0
            for name, number in names.items()
        }

    def _reads(self, name: str, raw: str) -> bool:
        """Whether what IPython compiled under a name is this text; also where that is no longer known."""
        compiled = "".join(linecache.getlines(name)).strip()
        return not compiled or compiled == self._ipython.transform_cell(raw).strip()

    def _nested(self, cells: Mapping[int, Document]) -> dict[str, tuple[int, int]]:
        """The names under which magics such as %%capture, which run their body as a cell, compiled it.

        A later cell of the same text has taken the name.
        """
        found: dict[str, tuple[int, int]] = {}
        for number, cell in _below_magics(cells):
            body, above = cell.body
            later = {
                compiled_name(self._ipython, one.raw, n)
                for n, one in cells.items()
                if n > number and one.raw.strip() == body.strip()
            }
            for count in (number, number + 1):
                name = compiled_name(self._ipython, body, count)
                if name not in later:
                    found[name] = number, above
        return found

    def _timed(self, cells: Mapping[int, Document]) -> dict[tuple[object, ...], int]:
        """The cells of what ``%%time`` compiled, by what it does: the cell that defined it last."""
        found: dict[tuple[object, ...], int] = {}
        for number, cell in _below_magics(cells):
            with contextlib.suppress(SyntaxError, ValueError):  # a cell that failed to compile defined nothing
                found.update(dict.fromkeys(map(does, codes(compile_cell(self._ipython, cell))), number))
        return found

    def history_until(self, current: int, cells: Mapping[int, Document]) -> tuple[int, ...]:
        """The cells that made the session what it is, in order: all but those that failed."""
        return tuple(n for n in sorted(cells) if n == current or (is_cell(n) and n < current and n not in self.failed))

    def before_now(self) -> None:
        """Notes what the process has computed by now, which is all that is known of the cells that ran before."""
        self.earlier = max(0.0, time.process_time() - _IMPORT_S * len(sys.modules))

    def cost_of(self, cells: tuple[int, ...]) -> float:
        """Seconds that cells would compute again, at most.

        What they spent on imports is left out: modules are there now.
        """
        cost = sum(max(0.0, self.busy_for(n) - _IMPORT_S * self.loaded.get(n, 0)) for n in cells)
        return cost if all(n in self.busy for n in cells) else cost + self.earlier

    def busy_for(self, cell: int) -> float:
        """Seconds for which a cell kept its thread busy."""
        return self.busy.get(cell, self.seconds.get(cell, 0.0))


def _below_magics(cells: Mapping[int, Document]) -> Iterator[tuple[int, CellSource]]:
    return ((n, cell) for n, cell in cells.items() if isinstance(cell, CellSource) and cell.magic is not None)
