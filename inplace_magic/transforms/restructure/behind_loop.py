"""Where nothing smaller serves: the statements around a backward change their places.

for x in batch:                           for x in batch:
    loss += criterion(x)                      loss += criterion(x)
    opt.zero_grad()                       opt.zero_grad()
    loss.backward()                       loss.backward()
    opt.step()                            opt.step()

Where no step comes between the backwards they belong to one update, and the part that was summed first would count in
each of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.blocks import within
from ...source.dataflow import added, binds, calls_named, roots
from ...source.editor import Code, Edit, Loop
from ...source.lift import lift
from ..analysis.meetings import may_leave, steps_between, update_of
from ..analysis.points import crossing
from ..problem import Frame, Problem
from ..proposal import Proposal
from ..registry import register

_ONCE = message("why_sum_once")


@register("second_backward", "modified")
def restructure(problem: Problem) -> Iterator[Proposal]:
    for frame in problem.frames(problem.need_stack):
        loop = next((above for above in frame.code.parents(frame.statement) if isinstance(above, Loop)), None)
        if loop is None or not _sums_up(problem, frame, loop):
            continue
        edits = _behind(frame.code, loop, frame.statement)
        if edits:
            title = message("title_once_over", what=" ".join(frame.code.text(frame.statement).split()))
            texts = {frame.code.cell.number: frame.code.apply(*edits)}
            form = "restructure: behind the loop" if steps_between(problem) else "restructure: one update"
            yield Proposal(title, _ONCE, form, texts)
        return


def _sums_up(problem: Problem, frame: Frame, loop: ast.stmt) -> bool:
    """Whether what passes from one iteration into the next is a sum that is begun right before the loop."""
    code = frame.code
    used = [f.statement for edge in crossing(problem).over for f in problem.frames(edge.used) if f.code is code]
    terms = [added(s) for s in used if within(code, [loop], s) is loop]
    sums = {ast.unparse(term[0]) for term in terms if term is not None}
    block = code.block(loop)
    begun = {name for s in block[: block.index(loop)] if isinstance(s, ast.Assign) for name in binds(s)}
    return bool(sums & roots(frame.statement) & begun)


def _behind(code: Code, loop: ast.For | ast.While | ast.AsyncFor, backward: ast.stmt) -> list[Edit]:
    """The update, which must be the end of the loop's body, moved behind the loop."""
    top = within(code, loop.body, backward)
    if top is None or loop.orelse:
        return []
    moved = update_of(loop.body, top)
    moved += [s for s in loop.body[loop.body.index(moved[-1]) + 1 :] if calls_named(s, "zero_grad", "step")]
    last = moved[-1] is loop.body[-1] and len(moved) < len(loop.body)
    lifted = lift(code, moved) if last and may_leave(loop, moved, top) else None
    if lifted is None:
        return []
    return [*lifted.edits, code.insert_after(loop, *lifted.lines)]
