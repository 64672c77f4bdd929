"""Where nothing smaller serves: the statements around a backward change their places.

for x in batch:                           for x in batch:
    loss += criterion(x)                      loss += criterion(x)
    opt.zero_grad()                       opt.zero_grad()
    loss.backward()                       loss.backward()
    opt.step()                            opt.step()

Where no step comes between the backwards they belong to one update, and the part that was summed first would count in
each of them. Where gradients are cleared ahead of the loop alone, one update was meant.

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
from ...source.blocks import AnyLoop
from ...source.dataflow import (
    added,
    binds,
    calls,
    calls_named,
    is_call,
    is_step,
    key_of,
    of_head,
    reads,
    receiver,
    roots,
    sums,
)
from ...source.editor import Code
from ...source.lift import moved
from ..analysis.backward_calls import loss_of
from ..analysis.iterations import Iteration, iterations
from ..analysis.meetings import CLIPS, clears_by_hand, headline, standing_in, steps_between, update_of, updates_weights
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_ONCE = message("why_sum_once")
_TOGETHER = message("why_one_step")


@register("second_backward", "modified")
def restructure(problem: Problem) -> Iterator[Proposal]:
    for turn in iterations(problem):
        code, loop, update = turn.code, turn.loop, update_of(turn.body, turn.need)
        if loop is not None and not loop.orelse and _sums_up(problem, turn, loop) and _may_leave(turn, loop, update):
            title = message("title_once_over", what=headline(code, turn.frame.statement))
            form = "restructure: behind the loop" if steps_between(problem) else "restructure: one update"
            cleared = _cleared_ahead(turn, loop) and any(map(is_step, update))
            form = "restructure: as often as cleared" if cleared else form
            yield in_one_text(code, moved(code, update, loop, behind=True), title, _ONCE, form, meant=cleared)


def _cleared_ahead(turn: Iteration, loop: AnyLoop) -> bool:
    """Whether gradients are cleared ahead of the loop alone, and the sum has no term with a name: that may be what was meant
    to go back.
    """
    if calls_named(loop, "zero_grad") or not any(is_call(s, "zero_grad") for s in turn.code.preceding(loop)):
        return False
    return not any(isinstance(term[1], ast.Name) for s in turn.body if (term := added(s)) is not None)


def _sums_up(problem: Problem, turn: Iteration, loop: AnyLoop) -> bool:
    """Whether what passes from one iteration into the next is a sum that is begun right before the loop."""
    used = [f.statement for edge in problem.crossing.over for f in problem.frames(edge.used)]
    begun = binds(*turn.code.preceding(loop))
    return any(sums(s) & roots(turn.frame.statement) & begun for s in used)


def _may_leave(turn: Iteration, loop: AnyLoop, update: list[ast.stmt]) -> bool:
    """Whether an update, the end of the loop's body, may stand behind it: what reads a name that each iteration binds anew
    belongs to each of them.

    The backward itself is not asked: its loss is the sum of them all.
    """
    bound = {name for s in turn.body if s not in update for name in binds(s)}
    bound |= {key for one in of_head(loop) if (key := key_of(one)) is not None}
    asked = turn.need.test if isinstance(turn.need, ast.If) else None
    read = [s for s in (*update, asked) if s is not None and s is not turn.need]
    return update[-1] is turn.body[-1] and not any(reads(s) & bound for s in read)


@register("modified", "silent")
def one_step(problem: Problem) -> Iterator[Proposal]:
    """The step of a loop over losses whose graphs are older than the loop, an optimizer's or one by hand: once, behind it, for
    all of them.

    Optimizers that each iteration has for itself, ``heads[name].step()``, stay.
    """
    for turn in iterations(problem) if updates_weights(problem) else ():
        code, loop = turn.code, turn.loop
        if loop is None or loop.orelse or not _is_older(problem, turn, loop) or _of_one_loss(turn, loop):
            continue
        shared = [s for s in turn.body if not reads(s) & binds(loop)]
        clearing = [s for s in shared if is_call(s, "zero_grad")]
        by_hand = _by_hand(problem, turn)
        updates = [s for s in shared if is_step(s) or s in by_hand]
        if standing_in(code, updates, problem.lost):
            steps = [s for s in shared if s in updates or calls_named(s, *CLIPS)]
            edits = [*moved(code, steps, loop, behind=True), *moved(code, clearing, loop)]
            title = message("title_once_over", what=headline(code, updates[0]))
            cleared = all(_cleared_once(code, loop, step) for step in updates)
            form = "restructure: as often as cleared" if cleared else "restructure: one step"
            yield in_one_text(code, edits, title, _TOGETHER, form, meant=cleared)


def _is_older(problem: Problem, turn: Iteration, loop: AnyLoop) -> bool:
    """Whether the graph was made ahead of the loop, or by what it goes through, ``for loss in losses_of(net(x))``, once."""
    need, save = problem.clash.need, problem.clash.save
    if standing_in(turn.code, loop.body, problem.saved):
        return False
    if need is None or save is None or not standing_in(turn.code, [loop], problem.saved):
        return True
    earlier = problem.evidence.passes[: need.index]
    again = [one.backward for one in earlier if one.backward.stack[:1] == need.stack[:1]]
    return isinstance(loop, ast.For) and any(one.clock > save.clock for one in again)


def _of_one_loss(turn: Iteration, loop: AnyLoop) -> bool:
    """Whether each iteration goes back from the same loss: a step for all of them is not what is meant."""
    root = loss_of(turn.need)
    return root is not None and not any(calls(root)) and not reads(root) & binds(loop)


def _by_hand(problem: Problem, turn: Iteration) -> list[ast.stmt]:
    """The call, or the block, that updates weights by hand, if it is all that uses the gradients and nothing beside it clears
    them. An assignment may be one of several.
    """
    code, innermost = turn.code, [frame.statement for frame in problem.lost[-1:]]
    found = [s for s in standing_in(code, turn.body, problem.lost) if not is_step(s) and not calls_named(s, "backward")]
    beside = [s for s in turn.body if s is not turn.need and s not in found]
    owners = {code.text(owner) for s in found if (owner := _called_on(s)) is not None}
    clears = any(clears_by_hand(s) or ((on := _called_on(s)) is not None and code.text(on) in owners) for s in beside)
    return [] if clears else [s for s in found if s not in innermost or isinstance(s, (ast.For, ast.With))]


def _called_on(statement: ast.stmt) -> ast.expr | None:
    """``descent`` of ``descent.clear()``"""
    match statement:
        case ast.Expr(ast.Call(ast.Attribute(owner))):
            return owner
    return None


def _cleared_once(code: Code, loop: AnyLoop, step: ast.stmt) -> bool:
    """Whether the gradients that an optimizer's step uses are cleared ahead of the loop alone."""

    def called_on(method: str, *statements: ast.stmt) -> set[str]:
        calls = (call for s in statements for call in calls_named(s, method))
        return {code.text(owner) for call in calls if (owner := receiver(call)) is not None}

    cleared = called_on("zero_grad", *code.preceding(loop)) - called_on("zero_grad", loop)
    return bool(stepped := called_on("step", step)) and stepped <= cleared
