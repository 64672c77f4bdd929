"""A buffer that a function fills and gives out is given out as a copy, so that the next call leaves it alone.

def pack(t):                      def pack(t):
    stage.copy_(t)                    stage.copy_(t)
    return stage                      return stage.clone()

    rows[:] = t.numpy()               rows[:] = t.numpy()
    ctx.rows = rows                   ctx.rows = rows.copy()

kept.append(w.grad)               kept.append(w.grad.clone())
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.bindings import own_statements
from ...source.dataflow import called_name, calls_named
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
        yield from _appended(problem)
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


def _appended(problem: Problem) -> Iterator[Proposal]:
    """A gradient that is kept in a list, and is what the next backward adds to, or its seed."""
    for write in sites(problem, depth=1):
        code = write.code
        for call in calls_named(code.tree, "append"):
            value = call.args[0] if len(call.args) == 1 else None
            if value is None or not ((isinstance(value, ast.Attribute) and value.attr == "grad") or _of_grad(value)):
                continue
            edit = code.replace(value, f"{atom(code, value)}.clone()")
            yield _proposal(code, code.statement(call), edit)


def _of_grad(value: ast.expr) -> bool:
    """Whether it is one of the gradients that ``grad`` gives."""
    return isinstance(value, ast.Subscript) and isinstance(value.value, ast.Call) and called_name(value.value) == "grad"


def _proposal(code: Code, statement: ast.stmt, edit: Edit) -> Proposal:
    return in_one_text(code, [edit], code.edited(statement, [edit]), _WHY, "clone_returned")


def _given_out(statement: ast.stmt) -> ast.expr | None:
    """What is returned, or kept by an object."""
    if isinstance(statement, ast.Return):
        return statement.value
    kept = isinstance(statement, ast.Assign) and all(isinstance(t, ast.Attribute) for t in statement.targets)
    return statement.value if isinstance(statement, ast.Assign) and kept else None
