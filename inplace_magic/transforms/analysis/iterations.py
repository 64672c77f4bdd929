"""The iterations in which a program runs one backward, with the names that held a graph at each of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ...source.editor import Code, Function
from ..problem import Problem
from .meetings import frames, loops, meeting, within


@dataclass(frozen=True)
class Round:
    """A block that runs again and again, the function that it is in, and where in it the failing backward stands."""

    code: Code
    body: list[ast.stmt]
    need: ast.stmt
    function: str
    fixed: frozenset[str]
    inner: ast.stmt
    loop: bool = True


def holdings(problem: Problem) -> dict[str, dict[str, str]]:
    """Every name that held a graph at some backward, by function, over all passes."""
    found: dict[str, dict[str, str]] = {}
    for one in problem.evidence.passes:
        for scope, names in one.held.items():
            found.setdefault(scope, {}).update(names)
    return found


def rounds(problem: Problem) -> Iterator[Round]:
    """The loops around the failing backward, the innermost first; then the functions that may be called in turn."""
    stack = list(reversed(frames(problem, problem.need_stack)))
    spots = problem.need_stack
    for (code, statement), spot in zip(stack, spots[len(spots) - len(stack) :]):
        for loop in loops(code, statement):
            need = within(code, loop.body, statement)
            if need is not None:
                fixed = binds_of_target(loop)
                yield Round(code, loop.body, need, spot.function, frozenset(fixed), statement)
    if meeting(problem) is not None:
        return
    for (code, statement), spot in zip(stack, spots[len(spots) - len(stack) :]):
        function = code.function(statement)
        body = function.body if isinstance(function, Function) else code.tree.body
        need = within(code, body, statement)
        if need is not None:
            yield Round(code, body, need, spot.function, frozenset(), statement, loop=False)


def binds_of_target(loop: ast.stmt) -> set[str]:
    if not isinstance(loop, (ast.For, ast.AsyncFor)):
        return set()
    return {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
