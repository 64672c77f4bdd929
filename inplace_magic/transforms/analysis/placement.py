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

from ...source.bindings import bound, defaults, parameters
from ...source.blocks import loops, own_statements, scope, upwards
from ...source.dataflow import binds, calls_named, is_step, reads, rebinds
from ...source.editor import Code, Function, Loop
from ...source.names import declared
from ..problem import Frame, Problem
from .meetings import UPDATES


def assignments_to_follow(problem: Problem, frame: Frame, name: str) -> list[ast.stmt] | None:
    """The assignments behind which a line that calls a method of ``name`` has to stand, once each; empty where it may
    follow the frame's statement, None where it can stand in neither place.

    It may follow the statement if the name is not assigned in this function at all, or if an assignment other than of a
    literal (``None``, ``0.0``) dominates the statement. Else each assignment in the loop is followed.
    """
    code, function = frame.code, scope(frame.code, frame.statement)
    made = [s for s in own_statements(code, function) if isinstance(s, _ASSIGNMENTS) and name in binds(s)]
    if not made or "." in name or _given(problem, frame, name) or _dominated(frame, name):
        return []
    return [s for s in _region(frame) if s in made and not _is_literal(code, s, name)] or None


def read_on(frame: Frame, name: str, follow: list[ast.stmt]) -> bool:
    """Whether the history of ``name`` is still read between one of the assignments and the frame's statement."""
    region, end = _region(frame), frame.statement
    behind = [later for s in follow for later in region if _after(later, s) and not _after(later, end)]
    heads = (node for s in behind for node in ast.iter_child_nodes(s) if not isinstance(node, ast.stmt))
    return any(name in reads(node) for node in heads)


def end_of_update(frame: Frame) -> ast.stmt:
    """The step that follows a backward in its block, with what else belongs to the update; else the statement."""
    behind = frame.code.following(frame.statement)
    update = itertools.takewhile(lambda s: calls_named(s, *UPDATES, "update"), behind)
    return [frame.statement, *filter(is_step, update)][-1]


_ASSIGNMENTS = (ast.Assign, ast.AugAssign, ast.AnnAssign)


def _region(frame: Frame) -> list[ast.stmt]:
    """The statements of the innermost loop around the frame's, else of its function."""
    around = [*loops(frame.code, frame.statement), scope(frame.code, frame.statement)]
    return list(own_statements(frame.code, around[0]))


def _given(problem: Problem, frame: Frame, name: str) -> bool:
    """Whether the name has a value when the function begins: a parameter that no default makes None, or one from around it."""
    function = frame.code.function(frame.statement)
    if not isinstance(function, Function):
        others = ((code, s) for code in problem.codes() if code is not frame.code for s in code.tree.body)
        return any(name in binds(s) and not _is_literal(code, s, name) for code, s in others)
    optional = {one for one, value in defaults(function).items() if ast.unparse(value) == "None"}
    return name in {*parameters(function)} - optional | declared(function)


def _dominated(frame: Frame, name: str) -> bool:
    """Whether an assignment that runs in any case, or a use of the name that does, comes before the statement's end."""
    code, statement = frame.code, frame.statement
    before = [s for above in upwards(code, statement) for s in code.preceding(above)]
    # A loop is taken to run at least once: ``total = 0``, ``for x in xs: total += f(x)``.
    before += [inner for s in before if isinstance(s, Loop) for inner in s.body if isinstance(inner, ast.AugAssign)]
    if any(name in rebinds(s) and not _is_literal(code, s, name) for s in before):
        return True
    if any(isinstance(s, ast.AugAssign) and name in binds(s) for s in before):
        return True
    return _is_used(code, statement, [*before, statement], name)


def _is_used(code: Code, statement: ast.stmt, before: list[ast.stmt], name: str) -> bool:
    """Whether a statement that runs in any case reads the name, and nothing binds it to a literal: so it has its value there."""
    plain = [s for s in before if isinstance(s, (ast.Expr, *_ASSIGNMENTS)) and name not in binds(s)]
    everywhere = own_statements(code, scope(code, statement))
    return any(name in reads(s) for s in plain) and not any(_is_literal(code, s, name) for s in everywhere)


def _is_literal(code: Code, statement: ast.stmt, name: str) -> bool:
    """Whether a statement binds the name to a literal, which is no tensor yet."""
    return any(isinstance(value, ast.Constant) for key, value in bound(code, statement) if key == name)


def _after(statement: ast.stmt, other: ast.stmt) -> bool:
    return (statement.lineno, statement.col_offset) > (other.end_lineno or other.lineno, other.end_col_offset or 0)
