"""A buffer that a function fills and gives out is given out as a copy, so that the next call leaves it alone.

def pack(t):                      def pack(t):
    stage.copy_(t)                    stage.copy_(t)
    return stage                      return stage.clone()

    rows[:] = t.numpy()               rows[:] = t.numpy()
    ctx.rows = rows                   ctx.rows = rows.copy()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.bindings import own_statements
from ...source.editor import Code, Edit, Function, atom
from ..analysis.targets import root, sites
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_copy_is_given_out")


@register("silent")
def clone_returned(problem: Problem) -> Iterator[Proposal]:
    if problem.clash.write is not None and problem.clash.write.how == "shared":
        yield from _set(problem)
        return
    for write in sites(problem, depth=2):
        code, name = write.code, write.root_text
        function = code.function(write.statement)
        if name is None or not isinstance(function, Function):
            continue
        for statement in own_statements(code, function):
            value = _given_out(statement)
            held = root(value) if value is not None else None
            if value is None or held is None or code.text(held) != name:
                continue
            for copy in ("clone", "copy"):  # of a tensor, of an array
                edit = code.replace(value, f"{atom(code, value)}.{copy}()")
                yield _proposal(code, statement, edit)


def _set(problem: Problem) -> Iterator[Proposal]:
    """``b.grad = buffer``, which is the gradient of another leaf already."""
    for write in sites(problem, depth=1):
        value = _given_out(write.statement)
        if value is not None:
            edit = write.code.replace(value, f"{atom(write.code, value)}.clone()")
            yield _proposal(write.code, write.statement, edit)


def _proposal(code: Code, statement: ast.stmt, edit: Edit) -> Proposal:
    return in_one_text(code, [edit], code.edited(statement, [edit]), _WHY, "clone_returned")


def _given_out(statement: ast.stmt) -> ast.expr | None:
    """What is returned, or kept by an object."""
    if isinstance(statement, ast.Return):
        return statement.value
    kept = isinstance(statement, ast.Assign) and all(isinstance(t, ast.Attribute) for t in statement.targets)
    return statement.value if isinstance(statement, ast.Assign) and kept else None
