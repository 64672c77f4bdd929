"""The report for a terminal. rich is loaded only when something is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ..diagnosis import Diagnosis
from ..message import Language
from . import diff
from .canvas import Canvas
from .contents import FixShown, Report, report_of
from .escape import lines, visible
from .excerpt import Block, Line, Mark
from .load_rich import same_random

if TYPE_CHECKING:
    from rich.text import Text

Part = Literal["all", "lines", "fixes"]

_NARROWEST, _WIDEST = 24, 120
_SCREEN = 24  # rows
_GAP = 3
_LABEL_LEAST = 20
_TITLE_MOST = 60

_MARK_STYLE = {"saved": "cyan", "changed": "bold red", "needed": "cyan"}
_SIGN_STYLE = {"-": "red", "+": "green", " ": "dim"}


def render(
    diagnosis: Diagnosis,
    *,
    width: int,
    color: bool,
    accept: str = "%autograd_fix",
    patch: bool = False,
    language: Language = "en",
    part: Part = "all",
    whole: bool = False,
    pending: str = "",
    told: tuple[str, ...] = (),
) -> str:
    """Draw ``diagnosis`` in at most ``width`` columns, without an escape code unless ``color``.

    ``accept`` is the command that accepts fix 1, and with a number after it any other; without one, none is named.
    With ``patch`` the first fix is shown as its whole unified diff, with ``whole`` each fix with its diff. ``part``:
    only what is known before a fix has been looked for, or only what follows it, with the sentences that were not
    ``told`` yet. ``pending`` says that fixes are still looked for.
    """
    with same_random():
        page = Canvas(max(_NARROWEST, min(width, _WIDEST)))
        report = report_of(diagnosis, language)
        if part != "fixes":
            _head(page, report)
            gutter = max((len(str(line.number)) for block in report.blocks for line in block.lines), default=1)
            for block in report.blocks:
                _block(page, block, gutter)
        for sentence in report.sentences if part == "all" else [s for s in report.sentences if s not in told]:
            page.flow(page.prose(sentence), 2)
        if pending and not report.fixes:
            page.blank()
            page.flow(page.text(pending, "dim"))
        elif part != "lines":
            _fixes(page, report, accept, patch, whole)
            _notes(page, report)
            _accept(page, report, accept)
        return page.draw(color)


def render_fixes(diagnosis: Diagnosis, numbers: tuple[int, ...], *, width: int, color: bool, language: Language) -> str:
    """Draw some fixes of a diagnosis, by number from 1, each with its diff."""
    with same_random():
        page = Canvas(max(_NARROWEST, min(width, _WIDEST)))
        report = report_of(diagnosis, language)
        for number in numbers:
            page.blank()
            _fix(page, report.fixes[number - 1], title=len(report.fixes) > 1)
            if number > 1 or len(numbers) == 1:
                _command(page, report, number)
        return page.draw(color)


def _command(page: Canvas, report: Report, number: int) -> None:
    command = "%autograd_fix" if number == 1 else f"%autograd_fix {number}"
    page.flow(page.text("  " + report.say("accepts_number", command=command)))


def _head(page: Canvas, report: Report) -> None:
    head, status = page.text(report.headline, "bold"), page.text(report.status, "dim")
    room = page.width - page.cells(head) - page.cells(status)
    if room >= _GAP:
        page.add(head + page.text(" " * room) + status)
    else:
        page.flow(head)
        page.flow(status)


# ---- the lines ------------------------------------------------------------------------------------------------------


def _block(page: Canvas, block: Block, gutter: int) -> None:
    page.add(page.text(page.fit_end(block.name, page.width - 2), "bold cyan"), 2)
    for line in block.lines:
        _line(page, line, gutter)


def _line(page: Canvas, line: Line, gutter: int) -> None:
    """A line of code with its marks, once; twice only where it is too long to show all that is marked."""
    bar = page.text(f"{line.number:>{gutter + 2}} │ ", "dim")
    blank = page.text(" " * (gutter + 2) + " │ ", "dim")
    for shown, moved, marks in _windows(page, line, page.width - page.cells(bar)):
        page.add(bar + page.text(shown))
        before: Mark | None = None
        for mark in marks:
            again = before is not None and (before.start, before.end) == (mark.start, mark.end)
            _mark(page, blank, shown, moved, mark, again)
            before = mark


def _windows(page: Canvas, line: Line, room: int) -> list[tuple[str, int, list[Mark]]]:
    """The parts of a line that are shown, each with its marks: around all of them, or around each where that is too wide."""
    left = sorted(line.marks, key=lambda mark: mark.role != "changed")
    first, last = min(mark.start for mark in left), max(mark.end for mark in left)
    if page.cells(line.text) <= room or page.cells(line.text[first:last]) <= room - 2:
        return [(*page.window(line.text, first, last, room), list(line.marks))]
    drawn: list[tuple[str, int, list[Mark]]] = []
    while left:
        shown, moved = page.window(line.text, left[0].start, left[0].end, room)
        inside = [m for m in left if m is left[0] or (m.start >= moved and m.end <= moved + len(shown))]
        drawn.append((shown, moved, sorted(inside, key=lambda mark: (mark.start, mark.end))))
        left = [m for m in left if m not in inside]
    return sorted(drawn, key=lambda part: part[1])


def _mark(page: Canvas, blank: Text, shown: str, moved: int, mark: Mark, again: bool) -> None:
    """A row of carets with its label behind them, or below where there is no room; the label alone for the same carets."""
    start = min(max(mark.start - moved, 0), max(len(shown) - 1, 0))
    end = min(max(mark.end - moved, start + 1), max(len(shown), 1))
    left = page.cells(shown[:start])
    carets = page.text("^" * max(1, page.cells(shown[start:end])), _MARK_STYLE[mark.role])
    style = "bold" if mark.role == "changed" else ""
    label = page.prose(mark.label, style)
    room = page.width - page.cells(blank)
    behind = room - left - page.cells(carets) - 1
    if page.cells(label) <= behind:
        lead = page.text(" " * page.cells(carets)) if again else carets
        page.add(blank + page.text(" " * left) + lead + page.text(" ") + label)
        return
    if not again:
        page.add(blank + page.text(" " * left) + carets)
    at = left if room - left >= max(_LABEL_LEAST, min(page.cells(label), 2 * _LABEL_LEAST)) else 0
    for row in page.wrap(label, room - at):
        page.add(blank + page.text(" " * at) + row)


# ---- the fixes ------------------------------------------------------------------------------------------------------


def _fixes(page: Canvas, report: Report, accept: str, patch: bool, whole: bool) -> None:
    page.blank()
    if not report.fixes:
        page.flow(page.text(report.no_fix))
        return
    first, *others = report.fixes
    _fix(page, first, patch=patch)
    if whole:
        for fix in others:
            page.blank()
            _fix(page, fix)
    elif others:
        _others(page, report, others, accept)


def _fix(page: Canvas, fix: FixShown, *, patch: bool = False, title: bool = False) -> None:
    page.flow(page.text(fix.name, "bold") + page.text(" · ") + page.text(fix.status, _status_style(fix)), hang=2)
    if patch:
        _patch(page, fix)
    for section in () if patch else fix.sections:
        if section.label:
            page.add(page.text(page.fit_end(section.label, page.width - 2), "cyan"), 2)
        for line in section.lines:
            for at, row in enumerate(page.code_rows(_shown(page, line), page.width - 4)):
                sign = line.sign if at == 0 else " "
                page.add(page.text(f"{sign} {row}".rstrip(), _SIGN_STYLE[line.sign]), 2)
    for clause in (*([] if fix.sure or not fix.why else [fix.why]), *fix.clauses):
        page.flow(page.prose(clause), 2, hang=2)


def _shown(page: Canvas, line: diff.Line) -> str:
    """A line of a diff; one that would take the whole screen, as a literal of numbers, around what it changes."""
    width = page.width - 4
    if page.cells(line.text) <= _SCREEN * width:
        return line.text
    return page.window(line.text, line.differs, min(len(line.text), line.differs + 2 * width), 4 * width)[0]


def _status_style(fix: FixShown) -> str:
    return "green" if fix.sure else "yellow"


def _patch(page: Canvas, fix: FixShown) -> None:
    for line in lines(fix.patch):
        header = line.startswith(("---", "+++", "@@"))
        page.add(page.text(visible(line), "bold" if header else _SIGN_STYLE.get(line[:1], "")))


def _others(page: Canvas, report: Report, others: list[FixShown], accept: str) -> None:
    """The other fixes by place and edit: in one line where they fit, else one a line."""
    titles = [_short(page, fix, report.fixes[0]) for fix in others]
    line = page.prose(report.say("more_fixes", count=len(others), fixes=" · ".join(titles)))
    show = page.text(f"{accept} --show" if accept else "", "bold")
    room = page.width - page.cells(line) - page.cells(show)
    if room >= 2 * _GAP:
        page.add(line + page.text(" " * (room if accept else 0)) + show)
        return
    page.add(page.text(report.say("more_fixes", count=len(others), fixes="").rstrip()))
    for number, one in enumerate(titles, 2):
        page.flow(page.text(f"{number}  ", "bold") + page.prose(one), 2, hang=3)
    page.flow(show, 2)


def _short(page: Canvas, fix: FixShown, first: FixShown) -> str:
    drawn = page.fit(fix.title.replace("`", ""), _TITLE_MOST)
    return drawn if fix.status == first.status else f"{drawn} ({fix.status})"


def _notes(page: Canvas, report: Report) -> None:
    if report.notes:
        page.blank()
    for note in report.notes:
        lead = page.text(report.say("note") + " ", "yellow")
        page.flow(lead + page.prose(note), hang=page.cells(lead))


def _accept(page: Canvas, report: Report, accept: str) -> None:
    if not accept or not report.fixes:
        return
    page.blank()
    kind = "accepts" if len(report.fixes) > 1 else "accepts_only"
    page.flow(page.prose(report.say(kind, command=f"`{accept}`").replace("`", ""), "bold"))
