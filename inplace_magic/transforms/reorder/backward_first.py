"""The backward runs before the values that it needs are changed.

    loss = (x ** 2).sum()             loss = (x ** 2).sum()
    x.data += 1                       loss.backward()
    loss.backward()                   x.data += 1

The change may stand in an earlier cell; then the backward moves there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...message import message
from ...source.blocks import upwards, within
from ...source.dataflow import binds, calls_named, roots, simple
from ...source.editor import Code, Loop
from ...source.lift import lift
from ..analysis.meetings import meeting
from ..analysis.targets import reads_gradient
from ..problem import Problem
from ..proposal import Change, Proposal, texts_of
from ..registry import register

_WHY = message("why_backward_first")


@register("silent")
def backward_first(problem: Problem) -> Iterator[Proposal]:
    for proposal in _proposals(problem):
        # An array that was made for a plot is better copied; a tensor that is written on purpose, later.
        on_purpose = problem.clash.write is not None and problem.clash.write.operation
        yield proposal if on_purpose else replace(proposal, form="silent_order: before a copy")


def _proposals(problem: Problem) -> Iterator[Proposal]:
    if problem.clash.save is None or problem.clash.write is None:
        return
    found = meeting(problem)
    if found is None:
        yield from _from_a_later_cell(problem)
        return
    makers = [s for s in found.between if any(s is one for one in found.loss)]
    passed = [found.first, *(s for s in found.between if s not in makers)]
    if any(found.first is one for one in found.loss) or _uses_gradients(passed) or not simple(found.need):
        return
    lifted = lift(found.code, [*makers, found.need])
    if lifted is None:
        return
    edits = [found.code.insert_before(found.first, *lifted.lines), *lifted.edits]
    yield _proposal(found.code, found.first, found.code.text(found.need), [(found.code, edit) for edit in edits])


def _uses_gradients(statements: Sequence[ast.stmt]) -> bool:
    """Whether the statements work with gradients, which a backward that comes earlier would have changed."""
    return any(
        calls_named(s, "step", "zero_grad", "backward", "grad", "clip_grad_norm_", "clip_grad_value_")
        or reads_gradient(s)
        for s in statements
    )


def _from_a_later_cell(problem: Problem) -> Iterator[Proposal]:
    first, needed = problem.frames(problem.write_stack)[:1], problem.frames(problem.need_stack)
    if not first or len(needed) != 1:
        return
    code, other, backward = first[0].code, needed[0].code, needed[0].statement
    if code.cell.number >= other.cell.number or not simple(backward):
        return
    top = within(code, code.tree.body, first[0].statement)
    below = code.tree.body[code.tree.body.index(top) :] if top is not None else []
    if top is None or {name for s in below for name in binds(s)} & roots(backward) or _uses_gradients(below):
        return
    if any(isinstance(above, Loop) for above in upwards(other, backward)):
        return
    text = other.text(backward)
    only = len(other.block(backward)) == 1 and not isinstance(other.parent(backward), ast.Module)
    gone = other.replace(backward, "pass") if only else other.delete(backward)
    yield _proposal(code, top, text, [(code, code.insert_before(top, " ".join(text.split()))), (other, gone)])


def _proposal(code: Code, first: ast.stmt, need: str, changes: list[Change]) -> Proposal:
    title = message("title_before", what=" ".join(need.split()), other=_short(code, first))
    return Proposal(title, _WHY, "silent_order", texts_of(changes))


def _short(code: Code, statement: ast.stmt) -> str:
    first = code.text(statement).splitlines()[0].strip()
    return f"`{first}`" if simple(statement) else message("what_changes_them")
