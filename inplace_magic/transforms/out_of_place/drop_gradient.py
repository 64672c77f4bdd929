"""Gradients that are part of a graph themselves are let go instead of being filled with zeros.

optimizer.zero_grad(set_to_none=False)    optimizer.zero_grad()
w.grad.zero_()                            w.grad = None
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.dataflow import calls_named
from ...source.editor import Code, Edit, dotted
from ..problem import Problem
from ..proposal import Proposal
from ..registry import register

_WHY = message("why_drop_gradient")


@register("modified")
def drop_gradient(problem: Problem) -> Iterator[Proposal]:
    write = problem.clash.write
    if write is None or not write.stack or not write.operation.endswith("zero_"):
        return
    code = problem.code(write.stack[0].cell)
    node = code.at(write.stack[0]) if code is not None else None
    if code is None or node is None:
        return
    edit = _edit(code, code.statement(node))
    if edit is not None:
        text = code.apply(edit)
        yield Proposal(
            text.splitlines()[write.stack[0].line - 1].strip(), _WHY, "drop_gradient", {code.cell.number: text}
        )


def _edit(code: Code, statement: ast.stmt) -> Edit | None:
    for call in calls_named(statement, "zero_grad"):
        for keyword in call.keywords:
            if keyword.arg == "set_to_none":
                return code.without_argument(keyword)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        path = dotted(statement.value.func)
        if path is not None and path.endswith((".grad.zero_", ".grad.data.zero_")):
            return code.replace(statement, f"{path[: path.rindex('.grad')]}.grad = None")
    return None
