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
from collections.abc import Iterator

from ...message import Message, message
from ...source.blocks import loops, within
from ...source.dataflow import binds, items_apart, key_of, of_head, reads, roots, simple, slice_of
from ...source.editor import Code
from ...source.lift import as_lines, moved
from ..analysis.meetings import headline, meeting, uses_gradients
from ..problem import Problem, parted
from ..proposal import Proposal, in_one_text
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
    code, first, need = found.code, found.first, found.need
    makers, _ = slice_of(found.between, reads(need))
    cleared = uses_gradients([s for s in found.between if s not in makers])
    if first in found.loss:
        if isinstance(first, ast.With) and not cleared:
            # The backward, with what makes its loss behind the block, as the last that the block does.
            title = message("title_within", what=headline(code, need), other=headline(code, first))
            edits = moved(code, [*makers, need], first.body[-1], behind=True)
            yield in_one_text(code, edits, title, _WHY, form)
    elif not uses_gradients([first]):
        if not cleared:
            title = _ahead_of(code, first, headline(code, need))
            yield in_one_text(code, moved(code, [*makers, need], first), title, _WHY, form)
        elif isinstance(first, ast.Expr):  # what is cleared in between has to stay ahead of the backward
            title = message("title_after", what=(headline(code, first),), other=code.text(need))
            yield in_one_text(code, moved(code, [first], need, behind=True), title, _WHY, form)


def _from_a_later_cell(problem: Problem, form: str) -> Iterator[Proposal]:
    first, needed = problem.lost[:1], problem.needed
    if not first or len(needed) != 1:
        return
    code, other, backward = first[0].code, needed[0].code, needed[0].statement
    top = within(code, code.tree.body, first[0].statement)
    if code.cell.number >= other.cell.number or top is None or loops(other, backward):
        return
    below = [top, *code.following(top)]
    made = binds(*below) - items_apart([*below, backward])
    if made & roots(backward) or uses_gradients(below):
        return
    there = code.insert_before(top, *as_lines(other, backward))
    changes = ((code, there), (other, other.delete(backward)))
    yield Proposal(_ahead_of(code, top, headline(other, backward)), _WHY, form, changes)


def _from_inside(problem: Problem, form: str) -> Iterator[Proposal]:
    first, needed = parted(problem.lost, problem.needed)
    block = first[0].statement if first else None
    if not isinstance(block, ast.With) or not needed or needed[0].statement not in block.body:
        return
    code, need = needed[0].code, needed[0].statement
    before = code.preceding(need)
    makers, _ = slice_of(before, roots(need))
    given = {key_of(one) for one in of_head(block)}
    used = uses_gradients([s for s in before if s not in makers])
    if used or reads(*makers, need) & given:
        return
    # What the loss is made of may be meant to see what the block changes.
    title = _ahead_of(code, block, headline(code, need))
    edits = moved(code, [*makers, need], block)
    yield in_one_text(code, edits, title, _WHY, form, lossless=bool(makers))


def _ahead_of(code: Code, first: ast.stmt, need: str) -> Message:
    """The title of a backward that moves ahead of what changes what it needs."""
    short = f"`{headline(code, first)}`" if simple(first) else message("what_changes_them")
    return message("title_before", what=need, other=short)
