"""The first of two backwards keeps the graph for the second. Only where no step changes the weights in between.

loss_a.backward()                         loss_a.backward(retain_graph=True)
loss_b.backward()                         loss_b.backward()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from . import Problem, Proposal, register
from .flow import calls_named, steps_between, with_retain


@register("second_backward", rank=16)
def retain(problem: Problem) -> Iterator[Proposal]:
    freed = problem.clash.freed
    if freed is None or not freed.stack or steps_between(problem):
        return
    spot = freed.stack[0]
    need = problem.need_stack[:1]
    if need and (need[0].cell, need[0].line, need[0].column) == (spot.cell, spot.line, spot.column):
        return  # the same call again and again: the graph would be kept for ever
    code = problem.code(spot.cell)
    node = code.at(spot) if code is not None else None
    if code is None or node is None:
        return
    calls = [node] if isinstance(node, ast.Call) else calls_named(node, "backward", "grad")
    edit = with_retain(code, calls[0]) if len(calls) == 1 else None
    if edit is None:
        return
    text = code.apply(edit)
    yield Proposal(
        title=text.splitlines()[spot.line - 1].strip(),
        why="The first backward leaves the graph to the second one; the weights do not change in between.",
        rule="retain",
        texts={code.cell.number: text},
    )
