"""Where nothing smaller serves: the statements around a backward change their places.

for x in batch:                           for x in batch:
    loss += criterion(x)                      loss += criterion(x)
    opt.zero_grad()                       opt.zero_grad()
    loss.backward()                       loss.backward()
    opt.step()                            opt.step()

Where no step comes between the backwards they belong to one update, and the part that was summed first would count in
each of them.

for reward, prob in episode:              opt.zero_grad()
    loss = -prob.log() * reward           for reward, prob in episode:
    opt.zero_grad()                           loss = -prob.log() * reward
    loss.backward()                           loss.backward()
    opt.step()                            opt.step()

Losses of one forward are sent back one by one, and are stepped for together.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.blocks import AnyLoop, loops, within
from ...source.dataflow import binds, calls_named, is_call, is_step, reads, roots, summed_up
from ...source.editor import Code, Edit
from ...source.lift import moved
from ..analysis.meetings import CLIPS, headline, may_leave, steps_between, update_of
from ..problem import Frame, Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_ONCE = message("why_sum_once")
_TOGETHER = message("why_one_step")


@register("second_backward", "modified")
def restructure(problem: Problem) -> Iterator[Proposal]:
    for frame in problem.needed:
        code, statement = frame.code, frame.statement
        for loop in loops(code, statement)[:1]:
            if not _sums_up(problem, frame, loop):
                continue
            edits = _behind(code, loop, statement)
            if edits:
                title = message("title_once_over", what=headline(code, statement))
                form = "restructure: behind the loop" if steps_between(problem) else "restructure: one update"
                yield in_one_text(code, edits, title, _ONCE, form)
            return


def _sums_up(problem: Problem, frame: Frame, loop: ast.stmt) -> bool:
    """Whether what passes from one iteration into the next is a sum that is begun right before the loop."""
    used = [f.statement for edge in problem.crossing.over for f in problem.frames(edge.used)]
    sums = {ast.unparse(target) for s in used for target in summed_up(s)}
    begun = {name for s in frame.code.preceding(loop) for name in binds(s)}
    return bool(sums & roots(frame.statement) & begun)


def _behind(code: Code, loop: AnyLoop, backward: ast.stmt) -> list[Edit]:
    """The update, which must be the end of the loop's body, moved behind the loop."""
    top = within(code, loop.body, backward)
    if top is None or loop.orelse:
        return []
    update = update_of(loop.body, top)
    if update[-1] is not loop.body[-1] or not may_leave(loop, update, top):
        return []
    return moved(code, update, loop, behind=True)


@register("modified", "silent")
def one_step(problem: Problem) -> Iterator[Proposal]:
    """The step of a loop over losses whose graphs are older than the loop: once, behind it, for all of them."""
    write = problem.clash.write
    saved = [frame.statement for frame in problem.saved]
    for frame in problem.needed if write is not None and write.origin == "optim" else ():
        code = frame.code
        for loop in loops(code, frame.statement, without=saved)[:1]:
            steps = [s for s in loop.body if is_step(s) or calls_named(s, *CLIPS)]
            clearing = [s for s in loop.body if is_call(s, "zero_grad")]
            if not any(map(is_step, steps)) or loop.orelse or any(reads(s) & binds(loop) for s in steps):
                continue
            edits = [*moved(code, steps, loop, behind=True), *moved(code, clearing, loop)]
            title = message("title_once_over", what=headline(code, next(filter(is_step, steps))))
            yield in_one_text(code, edits, title, _TOGETHER, "restructure: one step")
