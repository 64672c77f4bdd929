"""The first of two backwards keeps the graph for the second. A step between them has to wait for that one.

loss_a.backward()                         loss_a.backward(retain_graph=True)
loss_b.backward()                         loss_b.backward()

y = net(x)                                y = net(x)
rows = [grad(y[i], x)[0]                  rows = [grad(y[i], x, retain_graph=True)[0]
        for i in range(len(y))]                   for i in range(len(y))]

for layer in layers:                      for layer in layers:
    layer.loss.backward()                     layer.loss.backward(retain_graph=True)

A gradient that a loss is made from is part of the graph itself: ``create_graph=True``. Kept alone, the graph would let such a loss
train nothing by it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence

from ...gradients.digest import close
from ...message import message
from ...source.blocks import loops, upwards
from ...source.dataflow import calls_named, is_step
from ...source.editor import Code
from ...source.lines import lines_of
from ..analysis.backward_calls import with_create, with_retain
from ..analysis.meetings import meeting, passes_to_need, steps_between
from ..analysis.targets import reads_gradient, updates_leaf
from ..problem import Frame, Problem, parted
from ..proposal import Proposal, in_one_text
from ..registry import register

_LEAVES = message("why_graph_kept")
_DIFFERENTIABLE = message("why_gradient_in_graph")
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@register("second_backward")
def retain(problem: Problem) -> Iterator[Proposal]:
    yield from _inside(problem)
    freed, stepped = problem.clash.freed, steps_between(problem)
    frame = problem.frame(freed.stack[0]) if freed is not None and freed.stack else None
    if freed is None or frame is None or (not _of_one_iteration(problem) if stepped else _updated_between(problem)):
        return
    if stepped and freed.stack[:1] == problem.need_stack[:1] and _of_one_loss(problem):
        return  # one loss for each of two updates: the kept graph would be that of the weights of before
    again, code, node = freed.stack == problem.need_stack, frame.code, frame.node
    if again and not _one_by_one(problem, node):
        return  # the same call again and again: the graph would be kept for ever
    calls = [node] if isinstance(node, ast.Call) else calls_named(node, "backward", "grad")
    if len(calls) != 1:
        return
    meant = _makes_a_loss(problem, again)
    form = "retain: past a step" if stepped else "retain: one by one" if again and not meant else "retain"
    of_created = "retain: differentiable" if meant else "retain: made differentiable"
    kept = with_retain(code, calls[0]), _LEAVES, form, False
    created = None if again and not meant else with_create(code, calls[0]), _DIFFERENTIABLE, of_created, meant
    for edit, why, of_form, says in (kept, created):
        if edit is not None:
            title = lines_of(code.apply(edit))[frame.spot.line - 1]
            yield in_one_text(code, [edit], title, why, of_form, meant=says)


def _makes_a_loss(problem: Problem, again: bool) -> bool:
    """Whether the gradient is a part of what goes back; of several that one call gives, of what goes back behind them."""
    need, found = problem.clash.need, problem.evidence.of_gradients
    return need is not None and (need.index in found or (again and any(index > need.index for index in found)))


def _inside(problem: Problem) -> Iterator[Proposal]:
    """A hook, or a Function, goes back again and again through one graph while a backward runs: ``autograd.grad(f0, z0, g)``."""
    # Of the backwards that run, the outermost is all that is recorded.
    around = {(spot.cell, spot.line) for spot in problem.need_stack[:1]}
    inner = problem.raised[:1] if around & {(spot.cell, spot.line) for spot in problem.raised[1:]} else ()
    for frame in filter(None, map(problem.frame, inner)):
        for call in calls_named(frame.node, "backward", "grad"):
            if (edit := with_retain(frame.code, call)) is not None:
                title = lines_of(frame.code.apply(edit))[frame.spot.line - 1]
                yield in_one_text(frame.code, [edit], title, _LEAVES, "retain")


def _of_one_iteration(problem: Problem) -> bool:
    """Whether the two backwards belong to one iteration: in one text, or at the top of two cells."""
    frames = problem.lost[:1] + problem.needed[:1]
    cells = {one.code.cell.number for one in frames}
    return meeting(problem) is not None or (len(cells) == 2 and not any(loops(f.code, f.statement) for f in frames))


def _one_by_one(problem: Problem, call: ast.AST) -> bool:
    """Whether a loop asks one graph, made ahead of it, for one gradient after the other: each is used by itself, or is
    that of another loss.
    """
    needed, saved = parted(problem.needed, problem.saved)
    for need in needed:
        around = loops(need.code, need.statement, without=[f.statement for f in saved[:1] if f.code is need.code])
        within = [node for node in ast.walk(need.statement) if isinstance(node, _COMPREHENSIONS)]
        if around or within:
            body = around[-1] if around else need.statement
            apart = bool(calls_named(call, "grad")) or reads_gradient(body) or _of_one_loss(problem) is False
            return apart and not updates_leaf(problem, body)
    return False


def _of_one_loss(problem: Problem) -> bool | None:
    """Whether the two backwards were called on the same values; None where these are not known of both."""
    freed, need, passes = problem.clash.freed, problem.clash.need, problem.evidence.passes
    if freed is None or need is None or need.index >= len(passes):
        return None
    first, last = passes[freed.index].value, passes[need.index].value
    return close(first, last) if first and last else None


def _updated_between(problem: Problem) -> bool:
    """Whether the code changes a leaf by hand between the two backwards, in their block, in the functions around them or in
    their cells: the kept graph would be that of its old value.
    """
    met = meeting(problem)
    elsewhere = any(
        one.steps for one in passes_to_need(problem)[:-1]
    )  # the steps seen between them are of other leaves
    lost, needed = parted(problem.lost, problem.needed)
    # What is left to run of the functions around the first backward, and what has run by then of those around the second.
    around = [*_beside(lost[1:], Code.following), *_beside(needed[1:], Code.preceding)]
    ran = [s for s in around if not calls_named(s, "step")]  # a step of an optimizer's has been seen
    if met is not None:
        ran += met.between
    elif lost and needed and lost[0].code is not needed[0].code:
        ran += [s for s in lost[0].code.tree.body if s.lineno > lost[0].statement.lineno]
        ran += [s for s in needed[0].code.tree.body if s.lineno < needed[0].statement.lineno]
    return any(updates_leaf(problem, s) for s in ran if not (elsewhere and is_step(s)))


def _beside(frames: Sequence[Frame], side: Callable[[Code, ast.stmt], list[ast.stmt]]) -> list[ast.stmt]:
    return [s for f in frames for above in upwards(f.code, f.statement) for s in side(f.code, above)]
