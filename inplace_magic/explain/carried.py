"""Where a freed graph is taken into a later backward, and by which names, told from the values that the trace saw pass over."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import takewhile

from ..diagnosis import Conflict, Place
from ..message import Message, kind_of, message
from ..record.evidence import Edge, Holder, RecordedConflict
from ..source.bindings import bound_anew
from ..source.location import SourceRange
from ..source.sources import Sources

_MOST_NAMES = 3


@dataclass(frozen=True)
class _Entrance:
    """A line that reads values of the freed graph, with the names that it reads them by."""

    place: Place
    names: tuple[str, ...]


def with_carrier(conflict: Conflict, seen: RecordedConflict, sources: Sources) -> Conflict:
    """The conflict with what takes the freed graph into the backward that failed.

    In a loop, one line frees the graph in an iteration and needs it in a later one: that line is as it should be. What is
    wrong is the line that takes the graph from one iteration into the other, which is then the conflict's ``changed``.
    """
    if seen.kind != "second_backward" or seen.crossing is None:
        return conflict
    entrances = _entrances(seen, seen.crossing.over, sources)
    if not entrances:
        return conflict
    if _same_line(conflict.changed, conflict.needed) and seen.frees_and_needs_in_one_call:
        return _in_a_loop(conflict, entrances)
    if conflict.carries or len(entrances) != 1 or len(entrances[0].names) != 1:
        return conflict
    (name,), place = entrances[0].names, entrances[0].place
    return replace(conflict, carries=message("carries_into", name=name, place=place.label))


def _in_a_loop(conflict: Conflict, entrances: list[_Entrance]) -> Conflict:
    first, *others = entrances
    too = [f"`{name}` ({other.place.label})" for other in others for name in other.names if name not in first.names]
    return replace(
        conflict,
        changed=first.place,
        changed_note=_note(first, conflict.carries),
        needed_note=message("both_with_comma", one=conflict.changed_note, other=conflict.needed_note),
        carries=message("carries_too", names=tuple(too), count=len(too)) if 0 < len(too) <= _MOST_NAMES else "",
    )


def _note(entrance: _Entrance, carries: str) -> Message:
    """The label at the line; with the iteration whose graph it is, where ``carries`` tells it."""
    names = tuple(f"`{name}`" for name in entrance.names)
    if not 0 < len(names) <= _MOST_NAMES:
        return message("takes_freed")
    if isinstance(carries, Message) and kind_of(carries) == "carries" and carries.arguments["name"] in entrance.names:
        return message("still_carries", names=names, count=len(names), when=carries.arguments["when"])
    return message("still_freed", names=names, count=len(names))


def _entrances(seen: RecordedConflict, over: Iterable[Edge], sources: Sources) -> list[_Entrance]:
    """The lines that the edges lead into, the one that ran first ahead. What a backward begins at is read by no line."""
    found: dict[str, list[tuple[Place, list[str]]]] = {}
    for edge in over:
        read = _read(edge, seen, sources)
        if read is not None:
            found.setdefault(read[0].label, []).append(read)
    return [_entrance(on_line) for on_line in found.values()]


def _read(edge: Edge, seen: RecordedConflict, sources: Sources) -> tuple[Place, list[str]] | None:
    """The outermost line that reads the value by a name which held it, of those below what calls the backward, too.

    It is the call that is given a state rather than the layer inside that computes with it; else the innermost line.
    """
    if edge.root or not edge.used:
        return None
    need = seen.need.stack if seen.need is not None else ()
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(reversed(edge.used), reversed(need))))
    for frame in tuple(reversed(edge.used))[shared:]:
        place = sources.place(frame)
        holders = [
            h
            for h in edge.holders
            if h.of_object or (h.scope in (frame.function, "<module>") and not _gone(h, frame, seen, sources))
        ]
        if place is not None and (names := [name for holder in holders for name in _written(holder, place)]):
            return place, names
    place = sources.place(edge.used[0])
    return None if place is None else (place, [])


def _gone(holder: Holder, frame: SourceRange, seen: RecordedConflict, sources: Sources) -> bool:
    """Whether the name holds another value by then, which its iteration has bound."""
    code = sources.code(frame.cell)
    if holder.scope != frame.function or code is None:
        return False
    events = seen.cause.stack if seen.cause is not None else ()
    before = [code.at(one) for one in events if (one.cell, one.function) == (frame.cell, frame.function)]
    nodes = [code.at(frame), *before]
    at, *since = [code.statement(node) if node is not None else None for node in nodes]
    return at is not None and bound_anew(code, at, holder.path, since[0] if since else None)


def _entrance(on_line: list[tuple[Place, list[str]]]) -> _Entrance:
    names = tuple(dict.fromkeys(name for _, written in on_line for name in written))
    place = on_line[0][0]
    if any(other.columns != place.columns for other, _ in on_line):
        place = replace(place, columns=None)
    spots = [spot for name in names for spot in _spots(re.escape(name), place)]
    return _Entrance(replace(place, columns=spots[0]) if len(spots) == 1 else place, names)


def _written(holder: Holder, place: Place) -> list[str]:
    """A holder as the line writes it; ``self.h`` for the attribute ``h`` of an object."""
    path = re.escape(holder.path)
    spots = _spots(rf"\w+\.{path}" if holder.of_object else path, place)
    return list(dict.fromkeys(place.text[start:end] for start, end in spots))


def _spots(pattern: str, place: Place) -> list[tuple[int, int]]:
    """Where in the expression a path over names stands, or in the whole line where that is not known."""
    start, end = place.columns or (0, len(place.text))
    return [
        match.span() for match in re.finditer(rf"(?<![\w.]){pattern}(?!\w)", place.text) if start <= match.start() < end
    ]


def _same_line(one: Place | None, other: Place | None) -> bool:
    return one is not None and other is not None and one.label == other.label
