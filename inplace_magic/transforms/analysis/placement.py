"""Where a name certainly has its value: a line that reads it may only stand where its assignment has run.

if mode == "rnn":
    out, hidden = rnn(x, hidden)
    hidden = hidden.detach()              # here, and not behind the backward, where it may be unbound
else:
    out = linear(x)
loss(out).backward()
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from ...source.blocks import loops, own_statements, scope, upwards
from ...source.dataflow import binds, calls_named, is_step, reads, rebinds
from ...source.editor import Function
from ..problem import Frame, Problem


def assignments_to_follow(problem: Problem, frame: Frame, name: str) -> list[ast.stmt] | None:
    """The assignments behind which a line that calls a method of ``name`` has to stand, once each; empty where it may
    follow the frame's statement, None where it can stand in neither place.

    It may follow the statement if the name is not assigned in this function at all, or if an assignment other than of a
    literal (``None``, ``0.0``) dominates the statement. Else each assignment in the loop is followed.
    """
    code, statement = frame.code, frame.statement
    function = scope(code, statement)
    bound = [s for s in own_statements(code, function) if _simply_binds(s, name)]
    if not bound or "." in name or _given(problem, frame, name) or _dominated(frame, name):
        return []
    return [s for s in _region(frame, function) if s in bound and not _nothing(s, name)] or None


def read_on(frame: Frame, name: str, follow: list[ast.stmt]) -> bool:
    """Whether the history of ``name`` is still read between one of the assignments and the frame's statement."""
    return any(
        name in reads(node)
        for s in follow
        for later in _region(frame, scope(frame.code, frame.statement))
        if _after(later, s) and not _after(later, frame.statement)
        for node in _own_expressions(later)
    )


def end_of_update(frame: Frame) -> ast.stmt:
    """The step that follows a backward in its block, with what else belongs to the update; else the statement."""
    statement = frame.statement
    block = frame.code.block(statement)
    following = block[block.index(statement) + 1 :]
    update = list(
        itertools.takewhile(lambda s: calls_named(s, "step", "zero_grad", "clip_grad_norm_", "update"), following)
    )
    steps = [s for s in update if is_step(s)]
    return steps[-1] if steps else statement


def _region(frame: Frame, function: ast.AST) -> list[ast.stmt]:
    """The statements of the innermost loop around the frame's, else of its function."""
    around = loops(frame.code, frame.statement)
    return list(own_statements(frame.code, around[0] if around else function))


def _simply_binds(statement: ast.stmt, name: str) -> bool:
    return isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign)) and name in binds(statement)


def _given(problem: Problem, frame: Frame, name: str) -> bool:
    """Whether the name has a value when the function begins: a parameter that no default makes None, or another cell's."""
    function = frame.code.function(frame.statement)
    if not isinstance(function, Function):
        others = (s for code in problem.codes() if code is not frame.code for s in code.tree.body)
        return any(name in binds(s) and not _nothing(s, name) for s in others)
    if any(name in s.names for s in ast.walk(function) if isinstance(s, (ast.Global, ast.Nonlocal))):
        return True
    a = function.args
    positional = [*a.posonlyargs, *a.args]
    optional = {p.arg for p, d in zip(positional[::-1], a.defaults[::-1]) if _is_none(d)}
    optional |= {p.arg for p, d in zip(a.kwonlyargs, a.kw_defaults) if _is_none(d)}
    return name in {p.arg for p in (*positional, *a.kwonlyargs)} - optional


def _dominated(frame: Frame, name: str) -> bool:
    """Whether an assignment that runs in any case, or the name's own use in the statement, comes before its end."""
    code = frame.code
    for above in upwards(code, frame.statement):
        block = code.block(above)
        if any(name in rebinds(s) and not _nothing(s, name) for s in block[: block.index(above)]):
            return True
    return name in reads(frame.statement) and not isinstance(frame.statement, ast.If)


def _nothing(statement: ast.stmt, name: str) -> bool:
    """Whether a statement binds the name to a literal, which is no tensor yet."""
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return False
    value = statement.value
    for target in statement.targets if isinstance(statement, ast.Assign) else ():
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            pairs = zip(target.elts, value.elts)
            return any(isinstance(t, ast.Name) and t.id == name and isinstance(v, ast.Constant) for t, v in pairs)
    return isinstance(value, ast.Constant)


def _is_none(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _after(statement: ast.stmt, other: ast.stmt) -> bool:
    return (statement.lineno, statement.col_offset) > (other.end_lineno or other.lineno, other.end_col_offset or 0)


def _own_expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    return (node for node in ast.iter_child_nodes(statement) if not isinstance(node, ast.stmt))
