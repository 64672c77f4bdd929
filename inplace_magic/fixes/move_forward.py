"""A forward that was computed once, before the loop or in an earlier cell, is computed in every round.

y = f(x, a)                               for _ in range(3):
for _ in range(3):                            y = f(x, a)
    loss = criterion(y, target)               loss = criterion(y, target)
    loss.backward()                           loss.backward()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from . import Problem, Proposal, register
from .carried_state import holdings
from .flow import (
    Earlier,
    binds,
    computed_once,
    live_in,
    reads,
    simple,
    slice_of,
    source_lines,
    update_of,
    value_reads,
    without_retain,
)

_AFTER_RETAIN = 17  # two single backwards, in cells of their own: keeping the graph is less than making it again
_MOST = 6  # statements that a person would move


@register("modified", "second_backward", rank=14)
def move_forward(problem: Problem) -> Iterator[Proposal]:
    found = computed_once(problem)
    if found is None:
        return
    moved = chain(problem, found)
    if not moved or len(moved) > _MOST or not all(simple(s) for s in moved):
        return
    code, source = found.code, found.source
    made = {name for s in moved for name in binds(s)}
    front = next((s for s in found.body if reads(s) & made), None)
    if front is None:
        return
    if front is found.need:
        front = update_of(found.body, found.need)[0]
    lines = [line for s in moved for line in source_lines(source, s)]
    edits = [code.insert_before(front, *lines)]
    if source is code and _before_loop(found) and not _used_before(found, moved, made):
        edits += [code.delete(s) for s in moved]
    retained = without_retain(code, found.body) if found.loop is not None else []
    where = "in every round" if found.loop is not None else "again"
    title = f"{lines[0]} {where}" if len(moved) == 1 else f"{lines[0]} … {source_lines(source, moved[-1])[0]} {where}"
    for extra in [retained, []] if retained else [[]]:
        yield Proposal(
            title=title,
            why="Each backward gets a graph of its own; the one that was computed once is used up by the first.",
            rule="move_forward",
            rank=None if found.loop is not None else _AFTER_RETAIN,
            texts={code.cell.number: code.apply(*edits, *extra)},
        )


def chain(problem: Problem, found: Earlier) -> list[ast.stmt]:
    """What has to be computed again: from the saving statement on, or all of the graph where it was freed."""
    stop = _loop_at(found)
    wanted = live_in(found.body) if found.loop is not None else live_in(found.body[: found.body.index(found.need) + 1])
    needed = slice_of(found.origin[:stop], wanted)[0]
    if problem.clash.kind == "second_backward":
        names = holdings(problem).get("<module>", {}) if found.source is not found.code else all_names(problem)
        graph = [s for s in needed if binds(s) & names.keys()]
        if found.save in graph:
            return _made_from(graph, needed)
        known = all_names(problem)
        if known and not binds(found.save) & known.keys():
            return []  # an object that keeps the graph: made anew it would be another object
    return _made_from([found.save], needed) if found.save in needed else []


def _made_from(first: list[ast.stmt], needed: list[ast.stmt]) -> list[ast.stmt]:
    """These statements and what is made from them, down to `targets = targets.detach()`."""
    tainted: set[str] = set()
    found = []
    for statement in needed:
        if statement in first or value_reads(statement) & tainted:
            tainted |= binds(statement)
            found.append(statement)
    return found


def all_names(problem: Problem) -> dict[str, str]:
    return {
        name: kind
        for scope, names in holdings(problem).items()
        if not scope.startswith(("class ", "stored in "))
        for name, kind in names.items()
    }


def _loop_at(found: Earlier) -> int:
    """Where in the forward's block the loop stands; behind its end if it does not."""
    holding = (i for i, s in enumerate(found.origin) if any(node is found.loop for node in ast.walk(s)))
    return next(holding, len(found.origin))


def _before_loop(found: Earlier) -> bool:
    """Whether the forward stands in the block of the loop, or around it, and not in a loop of its own."""
    return _loop_at(found) < len(found.origin)


def _used_before(found: Earlier, chain: list[ast.stmt], made: set[str]) -> bool:
    """Whether something else between the forward and the loop uses it, or shares its lines."""
    start = found.origin.index(chain[0]) if chain[0] in found.origin else 0
    stop = _loop_at(found)
    others = [s for s in found.origin[start:stop] if s not in chain]
    return any(reads(s) & made for s in others) or not all(found.code.alone(s) for s in chain)
