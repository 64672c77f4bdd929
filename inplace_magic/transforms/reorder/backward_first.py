"""The backward runs before the values that it needs are changed.

    loss = (x ** 2).sum()             loss = (x ** 2).sum()
    x.data += 1                       loss.backward()
    loss.backward()                   x.data += 1

The change may stand in an earlier cell; then the backward moves there. Where gradients are cleared in between, the change
goes behind the backward. What a block changes as it is entered (``with averaged(net):``) is met ahead of the block, and what
it changes as it is left (``with noisy(net) as net:``) within it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...message import message
from ...source.blocks import loops, within
from ...source.dataflow import binds, calls_named, items_apart, key_of, of_head, reads, roots, simple, slice_of
from ...source.editor import Code
from ...source.lift import as_lines, lift
from ..analysis.meetings import UPDATES, headline, meeting
from ..analysis.targets import reads_gradient
from ..problem import Problem, parted
from ..proposal import Change, Proposal, in_one_text
from ..registry import register

_WHY = message("why_backward_first")


@register("silent")
def backward_first(problem: Problem) -> Iterator[Proposal]:
    write, found = problem.clash.write, meeting(problem)
    if problem.clash.save is None or write is None:
        return
    # An array that was made for a plot is better copied; a tensor that is written on purpose, later.
    form = "silent_order" if write.operation else "silent_order: before a copy"
    if found is None:
        yield from _from_a_later_cell(problem, form)
        yield from _from_inside(problem, form)
        return
    makers = [s for s in found.between if s in found.loss]
    passed = [found.first, *(s for s in found.between if s not in makers)]
    code, first, need = found.code, found.first, found.need
    if isinstance(first, ast.With) and first in found.loss and simple(need) and code.alone(first):
        behind = [s for s in found.between if s is not first]
        made, _ = slice_of(behind, reads(need))
        if not _uses_gradients([s for s in behind if s not in made]):
            yield _within(code, first, [*made, need], form)
    if first in found.loss or not simple(need) or _uses_gradients([first]):
        return
    if _uses_gradients(passed):  # what is cleared in between has to stay ahead of the backward
        lifted = lift(code, [first])
        edits = [*lifted.edits, code.insert_after(need, *lifted.lines)] if isinstance(first, ast.Expr) else []
        title = message("title_after", what=(headline(code, first),), other=code.text(need))
        yield from [in_one_text(code, edits, title, _WHY, form)] if edits else []
        return
    yield _ahead(code, first, [*makers, need], form)


def _uses_gradients(statements: Sequence[ast.stmt]) -> bool:
    """Whether the statements work with gradients, which a backward that comes earlier would have changed."""
    return any(calls_named(s, *UPDATES, "backward", "grad") or reads_gradient(s) for s in statements)


def _from_a_later_cell(problem: Problem, form: str) -> Iterator[Proposal]:
    first, needed = problem.frames(problem.write_stack)[:1], problem.needed
    if not first or len(needed) != 1:
        return
    code, other, backward = first[0].code, needed[0].code, needed[0].statement
    top = within(code, code.tree.body, first[0].statement)
    if code.cell.number >= other.cell.number or not simple(backward) or top is None or loops(other, backward):
        return
    below = [top, *code.following(top)]
    made = {name for s in below for name in binds(s)} - items_apart([*below, backward])
    if made & roots(backward) or _uses_gradients(below):
        return
    there = code.insert_before(top, *as_lines(other, backward))
    yield _proposal(code, top, other.text(backward), [(code, there), (other, other.delete(backward))], form)


def _from_inside(problem: Problem, form: str) -> Iterator[Proposal]:
    first, needed = parted(problem.lost, problem.needed)
    block = first[0].statement if first else None
    if not isinstance(block, ast.With) or not needed or needed[0].statement not in block.body:
        return
    code, need = needed[0].code, needed[0].statement
    before = code.preceding(need)
    makers, _ = slice_of(before, roots(need))
    moved = [*makers, need]
    given = {key_of(one) for one in of_head(block)}
    if any(reads(s) & given for s in moved) or not simple(need):
        return
    if _uses_gradients([s for s in before if s not in makers]):
        return
    # What the loss is made of may be meant to see what the block changes.
    yield replace(_ahead(code, block, moved, form), lossless=bool(makers))


def _within(code: Code, block: ast.With, moved: list[ast.stmt], form: str) -> Proposal:
    """The backward, with what makes its loss behind the block, as the last that the block does."""
    lifted = lift(code, moved)
    edits = [*lifted.edits, code.insert_after(block.body[-1], *lifted.lines)]
    title = message("title_within", what=" ".join(code.text(moved[-1]).split()), other=headline(code, block))
    return in_one_text(code, edits, title, _WHY, form)


def _ahead(code: Code, first: ast.stmt, moved: list[ast.stmt], form: str) -> Proposal:
    """The backward, the last of what is moved, ahead of what changes what it needs."""
    lifted = lift(code, moved)
    edits = [code.insert_before(first, *lifted.lines), *lifted.edits]
    return _proposal(code, first, code.text(moved[-1]), [(code, e) for e in edits], form)


def _proposal(code: Code, first: ast.stmt, need: str, changes: list[Change], form: str) -> Proposal:
    short = f"`{' '.join(code.text(first).split())}`" if simple(first) else message("what_changes_them")
    return Proposal(message("title_before", what=" ".join(need.split()), other=short), _WHY, form, tuple(changes))
