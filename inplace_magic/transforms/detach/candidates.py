"""Cuts as candidates: their title, and what several kinds of cut are written with."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

from ...message import message
from ...source.editor import Overlap
from ..analysis.backward_calls import freeing
from ..problem import Problem
from ..proposal import Change, Proposal

CARRIED = message("why_values_alone")


def candidates(problem: Problem, changes: Sequence[Change], form: str, why: str) -> Iterator[Proposal]:
    for edits in freeing(changes, (*problem.lost, *problem.needed)) if changes else ():
        with contextlib.suppress(Overlap):
            yield Proposal(_line(edits), why, f"detach: {form}", edits)


def boundary(held: Sequence[tuple[str, str]]) -> str:
    """The form of a cut of what paths of some shapes hold."""
    if any(shape.startswith(("list", "dict", "mapping", "deque")) for _, shape in held):
        return "boundary of containers"  # which others fill, and which would be created anew
    return "boundary of objects" if any("." in path for path, _ in held) else "boundary"


def _line(changes: Sequence[Change]) -> str:
    """The new line of the first change, as a title."""
    code, edit = changes[0]
    inserted = edit.text.strip("; \r\n\t") if edit.start == edit.end else ""
    if inserted:
        return inserted.splitlines()[0].strip()
    text = code.apply(*dict.fromkeys(other for one, other in changes if one is code))
    start = text.rfind("\n", 0, edit.start) + 1
    return text[start:].splitlines()[0].strip()


def in_one_line(cuts: Mapping[str, str | None]) -> str:
    """``h, c = h.detach(), c.detach()``"""
    return f"{', '.join(cuts)} = {', '.join(map(str, cuts.values()))}"
