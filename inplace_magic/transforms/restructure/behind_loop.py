"""Where nothing smaller serves: the statements around a backward change their places.

for x in batch:                           for x in batch:
    loss += criterion(x)                      loss += criterion(x)
    opt.zero_grad()                       opt.zero_grad()
    loss.backward()                       loss.backward()
    opt.step()                            opt.step()

Where no step comes between the backwards they belong to one update, and the part that was summed first would count in
each of them.

Where what an iteration hands on is no sum, and cannot be cut off, the losses of all iterations are collected for one update.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.dataflow import added, binds, calls_named, is_call, roots
from ...source.editor import Code, Edit, Loop
from ...source.lift import lift, unused
from ..analysis.meetings import steps_between, update_of, within
from ..analysis.points import crossing
from ..problem import Frame, Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_ONCE = message("why_sum_once")


@register("second_backward", "modified")
def restructure(problem: Problem) -> Iterator[Proposal]:
    for frame in problem.frames(problem.need_stack):
        loop = next((above for above in frame.code.parents(frame.statement) if isinstance(above, Loop)), None)
        if loop is None:
            continue
        if not _sums_up(problem, frame, loop):
            yield from _collected(problem, frame, loop)
            continue
        edits = _behind(frame.code, loop, frame.statement)
        if edits:
            title = message("title_once_over", what=" ".join(frame.code.text(frame.statement).split()))
            texts = {frame.code.cell.number: frame.code.apply(*edits)}
            one_update = not steps_between(problem)
            form = "restructure: one update" if one_update else "restructure: behind the loop"
            yield Proposal(title, _ONCE, form, texts, whole=one_update)
        return


def _collected(problem: Problem, frame: Frame, loop: ast.For | ast.While | ast.AsyncFor) -> Iterator[Proposal]:
    """``losses.append(loss)`` in each iteration, and the update behind the loop."""
    code, need = frame.code, frame.statement
    if not is_call(need, "backward") or not any(need is s for s in loop.body) or not crossing(problem).over:
        return
    update, name = update_of(loop.body, need), unused("losses", code)
    loss = need.value.func.value  # type: ignore[attr-defined]
    if len(update) < 2 or not isinstance(loss, (ast.Name, ast.Attribute)) or not all(map(code.alone, update)):
        return
    edits = [code.delete(s) for s in update if s is not need]
    edits += [code.replace(need, f"{name}.append({code.text(loss)})"), code.insert_before(loop, f"{name} = []")]
    edits.append(code.insert_after(loop, *(f"sum({name}).backward()" if s is need else code.text(s) for s in update)))
    title = message("title_once_over", what=f"sum({name}).backward()")
    yield in_one_text(code, edits, title, message("why_collected"), "restructure: collected")


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
    lifted = lift(code, moved) if moved[-1] is loop.body[-1] and len(moved) < len(loop.body) else None
    if lifted is None:
        return []
    return [*lifted.edits, code.insert_after(loop, *lifted.lines)]
