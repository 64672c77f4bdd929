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
from ...source.dataflow import calls_named, roots, simple
from ...source.editor import Code, Edit, Loop
from ...source.lift import lift
from ..analysis.meetings import frames, meeting, upwards, within
from ..problem import Problem
from ..proposal import Proposal, in_one_text
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
    indent = found.code.indent(found.first)
    lines = [line.removeprefix(indent) for line in lifted.text.splitlines() if line.strip()]
    yield _proposal(found.code, found.first, found.need, [found.code.insert_before(found.first, *lines), *lifted.edits])


def _uses_gradients(statements: Sequence[ast.stmt]) -> bool:
    """Whether the statements work with gradients, which a backward that comes earlier would have changed."""
    return any(
        calls_named(s, "step", "zero_grad", "backward", "grad", "clip_grad_norm_", "clip_grad_value_")
        or any(isinstance(node, ast.Attribute) and node.attr == "grad" for node in ast.walk(s))
        for s in statements
    )


def _from_a_later_cell(problem: Problem) -> Iterator[Proposal]:
    first, need = frames(problem, problem.write_stack), frames(problem, problem.need_stack)
    if not first or len(need) != 1:
        return
    (code, write), (other, backward) = first[0], need[0]
    if code is other or code.cell.number >= other.cell.number or not simple(backward):
        return
    top = within(code, code.tree.body, write)
    below = code.tree.body[code.tree.body.index(top) :] if top is not None else []
    makes_loss = any(_binds(s, name) for s in below for name in roots(backward))
    if top is None or makes_loss or _uses_gradients(below):
        return
    if any(isinstance(above, Loop) for above in upwards(other, backward)):
        return
    text = " ".join(other.text(backward).split())
    edits = [code.insert_before(top, text)]
    gone = other.replace(backward, "pass") if _only_one(other, backward) else other.delete(backward)
    yield Proposal(
        message("title_before", what=text, other=_short(code, top)),
        _WHY,
        "silent_order",
        {code.cell.number: code.apply(*edits), other.cell.number: other.apply(gone)},
    )


def _binds(statement: ast.stmt, name: str) -> bool:
    return any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
        for node in ast.walk(statement)
    )


def _only_one(code: Code, statement: ast.stmt) -> bool:
    block = code.block(statement)
    return len(block) == 1 and not isinstance(code.parent(statement), ast.Module)


def _proposal(code: Code, first: ast.stmt, need: ast.stmt, edits: list[Edit]) -> Proposal:
    title = message("title_before", what=" ".join(code.text(need).split()), other=_short(code, first))
    return in_one_text(code, edits, title, _WHY, "silent_order")


def _short(code: Code, statement: ast.stmt) -> str:
    first = code.text(statement).splitlines()[0].strip()
    return f"`{first}`" if simple(statement) else message("what_changes_them")
