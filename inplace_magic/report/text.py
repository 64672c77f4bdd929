"""The report for a terminal. rich is loaded only when something is drawn."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..diagnosis import Diagnosis, Fix
from . import diff, words
from .escape import code_spans, one_line, visible
from .load_rich import load_rich, same_random

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_NARROWEST, _WIDEST = 24, 120
_GAP = 3
_LABEL_MOST, _CODE_LEAST, _NOTE_LEAST = 28, 24, 24
_LEAD = 16

_HERE_STYLE = {"saved": "cyan", "changed": "bold red", "needed": "cyan"}
_SIGN_STYLE = {"-": "red", "+": "green", " ": "dim"}


def render(diagnosis: Diagnosis, *, width: int, color: bool, accept: str = "%autograd_fix", patch: bool = False) -> str:
    """Draw ``diagnosis`` in at most ``width`` columns, without an escape code unless ``color``.

    ``accept`` is the command that accepts fix 1, and with a number after it any other; without one, none is named.
    With ``patch`` the first fix is shown as its whole unified diff.
    """
    with same_random():
        page = _Page(max(_NARROWEST, min(width, _WIDEST)))
        _head(page, diagnosis)
        _trouble(page, diagnosis)
        _fixes(page, diagnosis, patch)
        _notes(page, diagnosis)
        _accept(page, diagnosis, accept)
        return page.draw(color)


def _head(page: _Page, diagnosis: Diagnosis) -> None:
    head = page.text(one_line(diagnosis.headline), "bold")
    took = page.text(words.took(diagnosis), "dim")
    room = page.width - page.cells(head) - page.cells(took)
    if room >= _GAP:
        page.add(head + page.text(" " * room) + took)
    else:
        page.flow(head)
        page.flow(took)


def _trouble(page: _Page, diagnosis: Diagnosis) -> None:
    if diagnosis.conflicts:
        _rows(page, words.rows(diagnosis.conflicts[0], diagnosis.family))
    if diagnosis.sentence:
        page.flow(page.prose(one_line(diagnosis.sentence)))
    if more := words.further(diagnosis.conflicts):
        page.flow(page.text(more))


def _rows(page: _Page, rows: Sequence[words.Row]) -> None:
    if not rows:
        return
    columns = _columns(page, rows)
    for row in rows:
        _row(page, row, columns) if columns else _stacked(page, row)


@dataclass(frozen=True)
class _Columns:
    """The widths of the columns; without one of their own, the notes go below the code."""

    label: int
    code: int
    here: int
    note: int | None


def _columns(page: _Page, rows: Sequence[words.Row]) -> _Columns | None:
    """As many columns as the page has room for, or None where it is too narrow to have any."""
    label = min(_LABEL_MOST, max(page.cells(row.label) for row in rows))
    code = max(page.cells(row.code) for row in rows)
    here = max(page.cells(row.here) for row in rows)
    note = max(page.cells(row.note) for row in rows)
    room = page.width - 2 - label - here - 3 * _GAP
    if code + min(note, _NOTE_LEAST) <= room:
        return _Columns(label, code, here, room - code)
    room += _GAP
    return _Columns(label, min(code, room), here, None) if min(code, _CODE_LEAST) <= room else None


def _row(page: _Page, row: words.Row, columns: _Columns) -> None:
    before_code, gap = 2 + columns.label + _GAP, page.text(" " * _GAP)
    line = page.pad(page.cut_left(row.label, columns.label), columns.label) + gap
    line += page.pad(page.cut(page.text(row.code), columns.code), columns.code) + gap
    line += page.text(row.here, _HERE_STYLE[row.role])
    if columns.note is None or not row.note:
        page.add(line, 2)
        page.flow(page.text(row.note, "dim"), before_code)
        return
    first, *rest = page.wrap(page.text(row.note), columns.note)
    before_note = before_code + columns.code + columns.here + 2 * _GAP
    page.add(page.pad(line, before_note - 2) + first, 2)
    for more in rest:
        page.add(more, before_note)


def _stacked(page: _Page, row: words.Row) -> None:
    label = page.cut_left(row.label, page.width - _GAP)
    page.flow(label + page.text("  ") + page.text(row.here, _HERE_STYLE[row.role]), 2)
    page.add(page.cut(page.text(row.code), page.width - 4), 4)
    page.flow(page.text(row.note, "dim"), 4)


def _fixes(page: _Page, diagnosis: Diagnosis, patch: bool) -> None:
    page.blank()
    if not diagnosis.fixes:
        page.flow(page.text(words.no_fix(diagnosis)))
        return
    count = len(diagnosis.fixes)
    for number, fix in enumerate(diagnosis.fixes, 1):
        _title(page, words.fix_name(number, count), fix, in_full=number == 1)
        if number == 1:
            _patch(page, fix) if patch else _diff(page, fix)
            for change in fix.live:
                page.flow(page.prose(words.live(change)), 2)
            page.flow(page.text(words.runs_again(fix)), 2)
            if count > 1:
                page.blank()


def _title(page: _Page, name: str, fix: Fix, *, in_full: bool) -> None:
    hang = page.cells(name) + _GAP if page.width >= 60 else 4
    lead = page.text(name, "bold" if in_full else "") + page.text(" " * _GAP)
    title = page.prose(one_line(fix.title))
    if in_full:
        title.stylize("bold")
    proof = page.text(words.proof(fix), _proof_style(fix))
    if page.cells(lead) + page.cells(title) + _GAP + page.cells(proof) <= page.width:
        page.add(lead + title + page.text(" " * _GAP) + proof)
    else:
        page.flow(lead + title, hang=hang)
        page.flow(proof, hang)
    if in_full and fix.why:
        page.flow(page.prose(one_line(fix.why)), hang)


def _proof_style(fix: Fix) -> str:
    return "green" if fix.verified and fix.gradients == "same" else "yellow"


def _diff(page: _Page, fix: Fix) -> None:
    room = page.width - 4
    for section in diff.sections(fix):
        if section.label:
            page.add(page.cut_left(section.label, page.width - 2), 2)
        too_wide = any(page.cells(line.text) > room for line in section.lines)
        for line in diff.dedented(section.lines) if too_wide else section.lines:
            shown = line.text
            if page.cells(shown) > room and line.differs > room - _LEAD:
                # Cut at the end only, the two lines of a change would look the same.
                shown = "…" + shown[line.differs - _LEAD :]
            drawn = page.cut(page.text(shown), room)
            page.add(page.text(f"{line.sign} {drawn.plain}".rstrip(), _SIGN_STYLE[line.sign]), 2)


def _patch(page: _Page, fix: Fix) -> None:
    for line in fix.diff.splitlines():
        header = line.startswith(("---", "+++", "@@"))
        page.add_as_is(page.text(visible(line), "bold" if header else _SIGN_STYLE.get(line[:1], "")))


def _notes(page: _Page, diagnosis: Diagnosis) -> None:
    if diagnosis.notes:
        page.blank()
    for note in diagnosis.notes:
        page.flow(page.text("Note: ", "yellow") + page.prose(one_line(note)), hang=6)


def _accept(page: _Page, diagnosis: Diagnosis, accept: str) -> None:
    if not accept or not diagnosis.fixes:
        return
    page.blank()
    line = page.text("Accept with ") + page.text(accept, "bold")
    others = [f"{accept} {number}" for number in range(2, len(diagnosis.fixes) + 1)]
    if others:
        said = ("the other one: " if len(others) == 1 else "the others: ") + ", ".join(others)
        if page.cells(line) + 5 + page.cells(said) > page.width:
            page.flow(line)
            page.flow(page.text(said))
            return
        line += page.text("     " + said)
    page.flow(line)


class _Page:
    """Lines of styled text, measured in terminal cells, so that wide characters align."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._rich = load_rich()
        self._lines: list[Text] = []
        self._measure = self._new_console(color=False)

    def text(self, plain: str, style: str = "") -> Text:
        made: Text = self._rich.text.Text()
        # A span, not the base style of the whole, which would run on into what is added behind it.
        return made.append(plain, style or None)

    def prose(self, plain: str) -> Text:
        made = self.text("")
        for is_code, part in code_spans(plain):
            made.append(f"`{part}`" if is_code else part, "cyan" if is_code else None)
        return made

    def cells(self, text: Text | str) -> int:
        plain = text if isinstance(text, str) else text.plain
        return int(self._rich.cells.cell_len(plain))

    def cut(self, text: Text, most: int) -> Text:
        text.truncate(max(most, 1), overflow="ellipsis")
        return text

    def cut_left(self, label: str, most: int) -> Text:
        """A label keeps its end: the file and the line."""
        if self.cells(label) > most:
            while label and self.cells(label) > most - 1:
                label = label[1:]
            label = "…" + label
        return self.text(label, "bold cyan")

    def pad(self, text: Text, width: int) -> Text:
        text.append(" " * max(width - self.cells(text), 0))
        return text

    def wrap(self, text: Text, width: int) -> list[Text]:
        return list(text.wrap(self._measure, max(width, 8))) or [text]

    def add(self, text: Text, indent: int = 0) -> None:
        line = self.text(" " * indent) + text
        line.rstrip()
        self._lines.append(line)

    def add_as_is(self, text: Text) -> None:
        self._lines.append(text)

    def flow(self, text: Text, indent: int = 0, *, hang: int = 0) -> None:
        """Add ``text`` wrapped to the page; ``hang`` indents every line but the first."""
        if not text.plain:
            return
        first, *rest = self.wrap(text, self.width - indent)
        self.add(first, indent)
        if rest:
            behind = text[len(first.plain) :]
            while behind.plain[:1] == " ":
                behind = behind[1:]
            for line in self.wrap(behind, self.width - indent - hang):
                self.add(line, indent + hang)

    def blank(self) -> None:
        self._lines.append(self.text(""))

    def draw(self, color: bool) -> str:
        drawn = io.StringIO()
        console = self._new_console(color=color, file=drawn)
        for line in self._lines:
            console.print(line, soft_wrap=True)
        return drawn.getvalue().rstrip("\n")

    def _new_console(self, *, color: bool, file: io.StringIO | None = None) -> Console:
        console: Console = self._rich.console.Console(
            file=file or io.StringIO(),
            width=self.width,
            color_system="standard" if color else None,
            force_terminal=color,
            force_jupyter=False,
            force_interactive=False,
            no_color=not color,
            legacy_windows=False,
            # The environment's own wishes are the caller's to weigh.
            _environ={},
        )
        return console
