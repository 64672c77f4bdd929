"""A loop that updates becomes several: all backwards before all steps.

Losses of one forward, each with an optimizer of its own:

for opt, loss in zip(opts, losses):       for opt, loss in zip(opts, losses):
    opt.zero_grad()                           opt.zero_grad()
    loss.backward(retain_graph=True)      for opt, loss in zip(opts, losses):
    opt.step()                                loss.backward(retain_graph=True)
                                          for opt, loss in zip(opts, losses):
                                              opt.step()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.blocks import loops, within
from ...source.dataflow import binds, called_name, calls_named, is_step, key_of, targets
from ...source.editor import Code, Edit, names_loaded
from ...source.lift import line_end, start_with_comments
from ..analysis.backward_calls import in_short, limited
from ..analysis.meetings import headline, share_leaves
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_AGAIN = ("zip", "enumerate", "range", "reversed", "sorted", "list")  # what may be gone through a second time


@register("modified", "silent")
def split_loop(problem: Problem) -> Iterator[Proposal]:
    write = problem.clash.write
    if write is None or write.origin != "optim":
        return
    for frame in problem.frames(problem.need_stack):
        code = frame.code
        for loop in loops(code, frame.statement):
            backward = within(code, loop.body, frame.statement)
            if isinstance(loop, ast.For) and backward is not None:
                for edit, text in _split(problem, code, loop, backward):
                    title, why = message("title_backwards_first", backward=text), message("why_all_backwards_first")
                    yield in_one_text(code, [edit], title, why, "split_loop")


def _split(problem: Problem, code: Code, loop: ast.For, backward: ast.stmt) -> Iterator[tuple[Edit, str]]:
    """The loop's statements up to its backward in loops of their own, the steps in the last; with the backward's text.

    Each iteration has an optimizer of its own: a training that goes on is not split.
    A loss may go back through what another optimizer steps: the backward is limited to what its own one holds, or is not.
    """
    bound = {key for one in targets(loop.target) if (key := key_of(one)) is not None}
    steps = [i for i, s in enumerate(loop.body) if is_step(s) and names_loaded([s]) & bound]
    at = loop.body.index(backward)
    if not steps or steps[0] <= at or not _repeatable(loop):
        return
    zeroing = [s for s in loop.body[:at] if calls_named(s, "zero_grad")]
    before, after = loop.body[: steps[0]], loop.body[steps[0] :]
    first = [s for s in before if s not in zeroing]
    made = {name for s in loop.body for name in binds(s)}
    if made & names_loaded(after) or not code.alone(loop):
        return
    start, end, whole = code.whole_lines([loop])
    raw = code.cell.raw
    head = raw[start : start_with_comments(code, loop.body[0])]
    indent = code.indent(loop.body[0])
    lines = {
        s: raw[start_with_comments(code, s) : line_end(code, s)]
        if code.alone(s)
        else indent + code.text(s) + code.newline  # one of several on a line
        for s in loop.body
    }
    inputs = [] if share_leaves(problem, 1) else limited(problem, code, backward, loop.body[steps[0]])
    for limit in [inputs, []] if inputs else [[]]:
        own = {**lines, backward: f"{indent}{code.edited(backward, limit)}{code.newline}"} if limit else lines
        parts = [head + "".join(own[s] for s in body) for body in (zeroing, first, after) if body]
        text = "".join(part if part.endswith("\n") else part + code.newline for part in parts)
        calls = [" ".join(code.edited(call, in_short(limit)).split()) for call in calls_named(backward, "backward")]
        edit = Edit(start, end, text if whole.endswith("\n") else text.removesuffix(code.newline))
        yield edit, (calls or [headline(code, backward)])[0]


def _repeatable(loop: ast.For) -> bool:
    """Whether the loop can be gone through once more, with a part of its body."""
    return not loop.orelse and loop.body[0].lineno != loop.lineno and _again(loop.iter)


def _again(through: ast.expr) -> bool:
    """Whether a loop can go through it once more: names, and the usual calls of names."""
    if isinstance(through, ast.Call):
        inner = [through.func.value] if isinstance(through.func, ast.Attribute) else []
        return called_name(through) in (*_AGAIN, "items", "values", "keys") and all(
            map(_again, [*through.args, *inner])
        )
    return isinstance(through, (ast.Name, ast.Attribute, ast.Constant, ast.List, ast.Tuple, ast.Subscript))
