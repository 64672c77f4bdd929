"""Cuts as candidates: their title, the texts that they give, and what several kinds of cut are written with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...message import message
from ...source.editor import Edit
from ..analysis.backward_calls import freeing
from ..problem import Problem
from ..proposal import Change, Proposal

CARRIED = message("why_values_alone")


def candidates(problem: Problem, changes: Sequence[Change], form: str, why: str) -> Iterator[Proposal]:
    if not changes:
        return
    code, first = changes[0]
    event = problem.clash.cause
    backwards = problem.frames((*(event.stack if event is not None else ()), *problem.need_stack))
    for texts in freeing(changes, backwards):
        title = _line_at(texts[code.cell.number], first)
        yield Proposal(title, why, f"detach: {form}", texts)


def _line_at(text: str, edit: Edit) -> str:
    """The new line, as a title."""
    inserted = edit.text.strip("; \r\n\t") if edit.start == edit.end or "\n" in edit.text else ""
    if inserted:
        return inserted.splitlines()[0].strip()
    start = text.rfind("\n", 0, edit.start) + 1
    end = text.find("\n", edit.start + 1)
    return text[start : end if end >= 0 else len(text)].strip()


def in_one_line(pairs: Sequence[tuple[str, str]]) -> str:
    """``h, c = h.detach(), c.detach()``"""
    return f"{', '.join(path for path, _ in pairs)} = {', '.join(new for _, new in pairs)}"


def of_containers(shapes: Iterable[str]) -> bool:
    """Whether something is kept in what others fill, and would be created anew."""
    return any(shape.startswith(("list", "dict", "mapping", "deque")) for shape in shapes)
