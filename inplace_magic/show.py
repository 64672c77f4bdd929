"""Shows a report where the person is looking: rich text in a terminal, a display bundle in a notebook."""

from __future__ import annotations

import os
import shutil
import sys
import time
import uuid
from types import TracebackType
from typing import Any

from .diagnosis import Diagnosis
from .message import Language, message, said
from .report.printing import say
from .session.shell import IPythonShell, asks_again, names_its_cell

_WIDE = 100  # columns of the plain text that a notebook keeps


class Showing:
    """One report while it grows: the lines as soon as they are known, fixes as they are verified.

    In a notebook it is one output that is updated, and that says what is going on until then. Where nothing promises that
    updates are shown, it is one output at the end. In a terminal the lines are printed, then the fixes; in between one
    line tells what is being done, and goes away.
    """

    def __init__(self, shell: IPythonShell, language: Language) -> None:
        self._shell, self._language = shell, language
        self._notebook = hasattr(shell, "kernel")
        self._grows = self._notebook and names_its_cell(shell)
        self._id = uuid.uuid4().hex
        self._displayed = self._shown = self._finished = False
        self._sentences: tuple[str, ...] = ()
        self._status = 0
        self._begun = time.monotonic()

    def __enter__(self) -> Showing:
        if self._grows:
            text = said(message("looking_lines"), self._language)
            self._display({"text/plain": text})
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._clear()
        if self._grows and not self._finished:
            self._display({"text/plain": ""})  # what is said instead is said by others

    def tell(self, text: str) -> None:
        """What is being done, in a terminal's one line."""
        if self._notebook or time.monotonic() - self._begun < 1.0 or not _on_terminal():
            return
        from .report.load_rich import load_rich

        cells: Any = load_rich().cells
        line = said(text, self._language)
        # in columns of the terminal: a Chinese character takes two, and what wraps would stay
        self._status = min(max(self._status, cells.cell_len(line)), _terminal(self._shell)[0] - 1)
        say(f"\r{cells.set_cell_size(line, self._status)}", end="")

    def publish(self, found: Diagnosis) -> None:
        """What is known so far."""
        if self._grows:
            from .report.bundle import bundle

            self._display(bundle(found, width=_WIDE, language=self._language, pending=True))
        elif not self._notebook and not self._shown:
            self._print(found, "lines")
            self.tell(message("looking"))
        self._shown = True

    def finish(self, found: Diagnosis) -> None:
        """All that there is."""
        self._finished = True
        if self._notebook:
            from .report.bundle import bundle

            self._display(bundle(found, width=_WIDE, language=self._language))
        elif self._shown:
            self._print(found, "fixes")
        else:
            show(self._shell, found, self._language)

    def _print(self, found: Diagnosis, part: Any) -> None:
        from .report import text
        from .report.contents import report_of

        self._clear()
        width, color = _terminal(self._shell)
        accept = _command(self._shell)
        drawn = text.render(
            found, width=width, color=color, language=self._language, accept=accept, part=part, told=self._sentences
        )
        self._sentences = report_of(found, self._language).sentences
        say("\n" + drawn)

    def _clear(self) -> None:
        if self._status:
            print("\r" + " " * self._status + "\r", end="", flush=True)
        self._status = 0

    def _display(self, data: dict[str, Any]) -> None:
        update, self._displayed = self._displayed, True
        self._shell.display_pub.publish(data=data, metadata={}, transient={"display_id": self._id}, update=update)


def show(
    shell: IPythonShell, found: Diagnosis, language: Language = "en", *, whole: bool = False, number: int | None = None
) -> None:
    """Draws the report with the shell's own means: as it is, with all fixes in full, or one fix by its number."""
    if hasattr(shell, "kernel") and number is None:
        from .report.bundle import bundle

        shell.display_pub.publish(data=bundle(found, width=_WIDE, language=language, whole=whole), metadata={})
        return
    from .report import text

    width, color = _terminal(shell)
    if number is not None:
        say(text.render_fixes(found, (number,), width=width, color=color, language=language))
        return
    accept = _command(shell)
    say("\n" + text.render(found, width=width, color=color, language=language, accept=accept, whole=whole))


def _command(shell: IPythonShell) -> str:
    """What accepts a fix; nothing does where nothing can be typed any more."""
    return "%autograd_fix" if asks_again(shell) else ""


def answer(shell: IPythonShell, text: str) -> None:
    """Says what an act came to: one line, which a terminal that is too narrow for it breaks between words."""
    if _on_terminal() and not hasattr(shell, "kernel"):
        from .report.canvas import Canvas
        from .report.load_rich import same_random

        with same_random():
            page = Canvas(_terminal(shell)[0])
            page.flow(page.text(text))
            text = page.draw(color=False)
    say(text)


def _terminal(shell: IPythonShell) -> tuple[int, bool]:
    """Its width, and whether it is to be coloured."""
    return min(shutil.get_terminal_size((100, 24)).columns, 120), _colourful(shell)


def _colourful(shell: IPythonShell) -> bool:
    if os.environ.get("NO_COLOR") or getattr(shell, "colors", "").lower() == "nocolor":
        return False
    return _on_terminal()


def _on_terminal() -> bool:
    """Whether a person reads what is printed; whatever has taken the place of stdout may not be able to tell."""
    return bool(getattr(sys.stdout, "isatty", lambda: False)())
