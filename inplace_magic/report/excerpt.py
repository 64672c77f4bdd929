"""The lines of a conflict as compilers draw them: each line once, a mark under each expression, a label at each mark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ..diagnosis import Conflict, Place
from ..families import RAISED_AT_WRITE
from ..message import Language, message, said
from .escape import one_line

Role = Literal["saved", "changed", "needed"]


@dataclass(frozen=True)
class Mark:
    """A label and the stretch of its line that it belongs to, in characters of the line as it is shown."""

    role: Role
    start: int
    end: int
    label: str


@dataclass(frozen=True)
class Line:
    """One line of code with its marks, from left to right."""

    number: int
    text: str
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Block:
    """The marked lines of one cell or file, in their order there. ``cell`` is None for a file."""

    name: str
    cell: int | None
    lines: tuple[Line, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "cell": self.cell,
            "lines": [
                {"number": line.number, "text": line.text, "marks": [vars(mark) for mark in line.marks]}
                for line in self.lines
            ],
        }


def blocks(conflict: Conflict, family: str, language: Language) -> tuple[Block, ...]:
    """A conflict's places, one block a cell or file, in the order in which it came to them."""
    places = list(_labelled(conflict, family, language))
    names = dict.fromkeys(_document(place) for _, place, _ in places)
    return tuple(
        Block(one_line(name), cell, tuple(_lines([p for p in places if _document(p[1]) == (name, cell)])))
        for name, cell in names
    )


def roles(conflict: Conflict, family: str) -> tuple[Role, ...]:
    """The roles of the places in the order in which things happened; a refused write has no backward of its own."""
    if family == "inference":
        return ("changed", "needed") if _same(conflict.saved, conflict.needed) else ("changed", "saved", "needed")
    if family in RAISED_AT_WRITE and _same(conflict.changed, conflict.needed):
        return ("saved", "changed")
    return ("saved", "changed", "needed")


def default_label(role: Role, family: str, conflict: Conflict) -> str:
    """What happened at a place of which nothing more is known."""
    if family == "second_backward":
        return message({"saved": "creates_graph", "changed": "frees", "needed": "needs_graph"}[role])
    if family == "inference":
        return message("creates_inference" if role == "changed" else "refuses_inference")
    if family in RAISED_AT_WRITE and role != "saved":
        if _same(conflict.changed, conflict.needed) or conflict.changed is None:
            return message(f"refuses_{family}")
        return message("changes_base" if role == "changed" else "refuses_base")
    if role == "needed":
        return message("uses_changed" if family == "silent" else "needs")
    return message("saves_kept" if role == "saved" else "changes")


def _labelled(conflict: Conflict, family: str, language: Language) -> Iterator[tuple[Role, Place, str]]:
    known: dict[Role, tuple[Place | None, str]] = {
        "saved": (conflict.saved, conflict.saved_note),
        "changed": (conflict.changed, conflict.changed_note),
        "needed": (conflict.needed, conflict.needed_note),
    }
    for role in roles(conflict, family):
        place, note = known[role]
        if place is not None:
            yield role, place, one_line(said(note or default_label(role, family, conflict), language))
    of_calls: tuple[Role, Role] = ("changed", "needed")
    for role, place in zip(of_calls, conflict.calls):
        label = "call_needs" if role == "needed" else "call_frees" if family == "second_backward" else "call_changes"
        yield role, place, one_line(said(message(label), language))


def _document(place: Place) -> tuple[str, int | None]:
    return place.label.rpartition(":")[0], place.cell


def _lines(places: list[tuple[Role, Place, str]]) -> Iterator[Line]:
    for number in sorted({place.line for _, place, _ in places}):
        here = [one for one in places if one[1].line == number]
        shown = one_line(here[0][1].text)
        marks = [Mark(role, *_span(place, shown), label) for role, place, label in here]
        yield Line(number, shown, tuple(sorted(marks, key=lambda mark: (mark.start, mark.end))))


def _span(place: Place, shown: str) -> tuple[int, int]:
    """The columns of a place, where what is shown is the text that they count in; else the whole line."""
    if place.columns is None or shown != place.text:
        return 0, max(1, len(shown))
    start, end = place.columns
    return (start, min(end, len(shown))) if 0 <= start < min(end, len(shown)) else (0, max(1, len(shown)))


def _same(one: Place | None, other: Place | None) -> bool:
    return one is not None and other is not None and one.label == other.label
