"""Losses of one forward, each with an optimizer of its own, in one loop: all backwards, then all steps.

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
from ...source.dataflow import binds, calls_named, is_step
from ...source.editor import Code, Edit, names_loaded
from ...source.lift import line_end, start_with_comments
from ..analysis.meetings import loops, within
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
                edit = _split(code, loop, backward)
                title, why = message("title_backwards_first"), message("why_all_backwards_first")
                if edit is not None:
                    yield in_one_text(code, [edit], title, why, "split_loop")
                return


def _split(code: Code, loop: ast.For, backward: ast.stmt) -> Edit | None:
    """The loop's statements up to its backward in loops of their own, the steps in the last."""
    steps = [i for i, s in enumerate(loop.body) if is_step(s)]
    at = loop.body.index(backward)
    if not steps or steps[0] <= at or loop.orelse or not _repeatable(loop.iter):
        return None
    zeroing = [s for s in loop.body[:at] if calls_named(s, "zero_grad")]
    before, after = loop.body[: steps[0]], loop.body[steps[0] :]
    first = [s for s in before if s not in zeroing]
    made = {name for s in loop.body for name in binds(s)}
    if made & names_loaded(after) or not code.alone(loop):
        return None
    if loop.body[0].lineno == loop.lineno:
        return None
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
    parts = [head + "".join(lines[s] for s in body) for body in (zeroing, first, after) if body]
    text = "".join(part if part.endswith("\n") else part + code.newline for part in parts)
    if not whole.endswith("\n"):
        text = text.removesuffix(code.newline)
    return Edit(start, end, text)


def _repeatable(through: ast.expr) -> bool:
    """Whether the loop can go through it once more: names, and the usual calls of names."""
    if isinstance(through, ast.Call):
        name = through.func.attr if isinstance(through.func, ast.Attribute) else getattr(through.func, "id", "")
        inner = [through.func.value] if isinstance(through.func, ast.Attribute) else []
        return name in (*_AGAIN, "items", "values", "keys") and all(map(_repeatable, [*through.args, *inner]))
    return isinstance(through, (ast.Name, ast.Attribute, ast.Constant, ast.List, ast.Tuple, ast.Subscript))
