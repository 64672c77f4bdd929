"""What was typed into each cell, by execution count.

IPython's history holds texts by position, which is the count only as long as nobody pastes: the block that ``%paste``,
``%cpaste`` or ``%edit`` runs is a cell of its own. IPython 9 counts it beside the magic's cell and stores one of the two,
so that every later position is off; IPython 7 stores the magic's line alone. What runs while we listen is noted here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from .shell import IPythonShell


class Info(Protocol):
    """What ``pre_run_cell`` tells."""

    raw_cell: str
    store_history: bool


class Result(Protocol):
    """What ``post_run_cell`` tells."""

    info: Info
    execution_count: int | None


@dataclass
class _Running:
    info: Info
    ran_cells: bool = False  # of their own

    @property
    def line_magic(self) -> bool:
        text = self.info.raw_cell.lstrip()
        return text.startswith("%") and not text.startswith("%%")


class CellTexts:
    """Filled from a shell's two events. The cells that ran before are looked up in its history."""

    def __init__(self, shell: IPythonShell) -> None:
        self._shell = shell
        self._noted: dict[int, str] = {}
        self._running: list[_Running] = []  # a cell, and those that it runs itself

    def begin(self, info: Info) -> None:
        self._running.append(_Running(info))

    def end(self, result: Result) -> int | None:
        """The count of the cell that has ended.

        None if it is a part of the one that runs it, as the body of %%capture, or a magic for which others have run.
        """
        ended, number = self._running.pop(), result.execution_count
        if number is None:  # IPython 7 gives none to what a magic or a command line runs, and counts when a cell ends
            number = self._shell.execution_count
        if ended.ran_cells or not all(outer.line_magic for outer in self._running):
            return None
        for outer in self._running:
            outer.ran_cells = True
        while self._noted and next(reversed(self._noted)) >= number:  # the count may begin anew
            self._noted.popitem()
        self._noted[number] = ended.info.raw_cell
        return number

    def running(self) -> int | None:
        """The count of the cell that runs now."""
        info = self._innermost()
        if info is None:
            return None
        number, compiled = self._shell.execution_count, self.compiled()
        began_count = info.store_history and compiled and number not in compiled.values()  # as IPython 9 does
        return number - 1 if began_count else number

    def until(self, current: int) -> dict[int, str]:
        """The cells up to a count, that one with them also while it runs."""
        first = min(self._noted, default=current + 1)
        texts = self._history(first) | self._noted
        info = self._innermost()
        if info is not None and current == self.running():
            texts[current] = info.raw_cell
        return {number: raw for number, raw in sorted(texts.items()) if 0 < number <= current and raw.strip()}

    def _innermost(self) -> Info | None:
        """The innermost of the cells that run which a person knows by a number."""
        within = next(
            (one for one in self._running if not one.line_magic), self._running[-1] if self._running else None
        )
        return within.info if within is not None else None

    def _history(self, before: int) -> dict[int, str]:
        """The texts of IPython's history by count: a position is moved on until the code compiled for it has that name."""
        history = list(self._shell.history_manager.input_hist_raw)
        off, most = 0, max(0, self._shell.execution_count - len(history))
        texts: dict[int, str] = {}
        for position, raw in enumerate(history):
            if most and raw.strip():
                off = next((n for n in range(off, most + 1) if self._ran_as(raw, position + n)), off)
            if position + off >= before:
                break
            texts[position + off] = raw
        return texts

    def _ran_as(self, raw: str, number: int) -> bool:
        return self.compiled().get(compiled_name(self._shell, raw, number)) == number

    def compiled(self) -> Mapping[str, int]:
        """The counts by the names under which cells were compiled; none before IPython 8."""
        known: Mapping[str, int] = getattr(self._shell.compile, "_filename_map", {})
        return known


def compiled_name(shell: IPythonShell, raw: str, number: int) -> str:
    """The name under which a cell is compiled."""
    return str(shell.compile.get_code_name(raw, shell.transform_cell(raw), number))
