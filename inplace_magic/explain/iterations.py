"""Which iteration of the person's loop saved, changed or needed a value, with the name that carried the graph on."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..diagnosis import Conflict
from ..message import message
from ..record.evidence import BackwardPass, Event, Evidence, RecordedConflict
from ..source.dataflow import live_in
from ..source.editor import names_bound
from ..source.location import SourceRange
from ..source.sources import Sources

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_Loop = ast.For | ast.AsyncFor | ast.While


@dataclass(frozen=True)
class _Turn:
    """The loop around the backward that failed. ``counted``: it began once, so that its iterations have numbers."""

    frame: SourceRange
    loop: _Loop
    counted: bool


def with_iterations(conflict: Conflict, seen: RecordedConflict, evidence: Evidence, sources: Sources) -> Conflict:
    """The conflict with its iterations in the labels, where they differ; else as it is.

    An iteration is counted by the backward that failed, which has run once in each. Where that is not sure, since it
    stands under a condition, nothing is said.
    """
    turn = _turn(seen, sources)
    if turn is None or seen.need is None:
        return conflict
    events = {"saved_note": seen.save, "changed_note": seen.cause, "needed_note": seen.need}
    clocks = sorted(p.backward.clock for p in evidence.passes if _is_counted(p.backward, seen.need, turn))
    numbers = {note: _number(event, seen.need, turn, clocks) for note, event in events.items()}
    known = {number for number in numbers.values() if number is not None}
    if len(known) < 2 or numbers["needed_note"] != max(known):
        return conflict
    labels: dict[str, Any] = {
        note: _label(getattr(conflict, note), number, max(known), turn)
        for note, number in numbers.items()
        if number is not None and getattr(conflict, note)
    }
    names = _carried(turn, evidence.passes)
    carries = ""
    if len(names) == 1 and numbers["saved_note"] is not None and numbers["saved_note"] < max(known):
        when = message("when_iteration", number=numbers["saved_note"]) if turn.counted else message("when_earlier")
        carries = message("carries", name=names[0], when=when)
    return replace(conflict, carries=carries, **labels)


def _label(note: str, number: int, last: int, turn: _Turn) -> str:
    if turn.counted:
        return message("in_iteration", label=note, number=number)
    return message("in_earlier_iteration", label=note) if number < last else note


def _turn(seen: RecordedConflict, sources: Sources) -> _Turn | None:
    """The innermost loop in which the failing backward is sure to run once an iteration."""
    stack = seen.need.stack if seen.need is not None else ()
    around = [(frame, _path(frame, sources)) for frame in stack]
    for at, (frame, path) in enumerate(around):
        loops = [i for i, node in enumerate(path) if isinstance(node, _LOOPS)]
        if not loops:
            if any(isinstance(node, ast.If) for node in path):
                return None
            continue
        loop = path[loops[-1]]
        assert isinstance(loop, _LOOPS)
        if any(isinstance(node, (ast.If, ast.Try)) for node in path[loops[-1] + 1 :]):
            return None
        outer = any(isinstance(node, _LOOPS) for _, other in around[at + 1 :] for node in other)
        return _Turn(frame, loop, counted=len(loops) == 1 and not outer)
    return None


def _path(frame: SourceRange, sources: Sources) -> list[ast.stmt]:
    """The statements around a line, from the outside, within the function that the frame is in."""
    cell = sources.cells.get(frame.cell) if frame.cell is not None else None
    node: ast.AST | None = cell.tree if cell is not None else None
    found: list[ast.stmt] = []
    while node is not None:
        inner = [n for n in ast.iter_child_nodes(node) if isinstance(n, ast.stmt) and _holds(n, frame.line)]
        node = inner[0] if inner else None
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found = []  # what stands around a definition is another frame's
        elif isinstance(node, ast.stmt):
            found.append(node)
    return found


def _holds(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _frame_in(event: Event, turn: _Turn) -> SourceRange | None:
    """The frame of an event that stands in the loop itself."""
    last = turn.loop.end_lineno or turn.loop.lineno
    for frame in event.stack:
        if (frame.cell, frame.function) == (turn.frame.cell, turn.frame.function) and (
            turn.loop.body[0].lineno <= frame.line <= last
        ):
            return frame
    return None


def _is_counted(event: Event, need: Event, turn: _Turn) -> bool:
    """Whether it is the backward that failed, and none of the others in the loop, or in what the loop calls."""
    depth = need.stack.index(turn.frame) + 1
    return [_position(spot) for spot in event.stack[:depth]] == [_position(spot) for spot in need.stack[:depth]]


def _position(spot: SourceRange) -> tuple[int | None, str, int, int | None]:
    return spot.cell, spot.function, spot.line, spot.column


def _number(event: Event | None, need: Event, turn: _Turn, clocks: list[int]) -> int | None:
    """The iteration of an event, from 1; None outside of the loop. What stands below the backward has it behind it."""
    frame = _frame_in(event, turn) if event is not None else None
    if event is None or frame is None:
        return None
    before = sum(clock < event.clock for clock in clocks)
    return max(before, 1) if _stands_below(event, frame, need, turn) else before + 1


def _stands_below(event: Event, frame: SourceRange, need: Event, turn: _Turn) -> bool:
    """Whether an event comes behind the backward in one iteration, by the lines where their calls part."""
    calls = event.stack[event.stack.index(frame) :: -1], need.stack[need.stack.index(turn.frame) :: -1]
    mine, backward = next(
        (pair for pair in zip(*calls) if _position(pair[0]) != _position(pair[1])), (frame, turn.frame)
    )
    return mine.function == backward.function and mine.line > (backward.end_line or backward.line)


def _carried(turn: _Turn, passes: Sequence[BackwardPass]) -> list[str]:
    """The names that the loop reads before it binds them anew, of those that held a graph at the last backward."""
    carried = sorted(live_in(turn.loop.body) & names_bound(turn.loop.body))
    held = next((p.held for p in reversed(passes) if p.held), {})
    holding = held.get(turn.frame.function, {})
    return [name for name in carried if name in holding]
