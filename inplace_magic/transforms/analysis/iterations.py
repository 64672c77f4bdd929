"""The iterations in which a program runs one backward, with the names that held a graph at each of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ...source.blocks import AnyLoop, Scope, loops, scope, within
from ...source.editor import Code, Loop
from ..problem import Frame, Problem
from .meetings import meeting


@dataclass(frozen=True)
class Iteration:
    """A block that runs again and again, its statement with the failing backward, and what stands there: ``frame``.

    It is the body of ``loop``, or of a function that may be called in turn.
    """

    body: list[ast.stmt]
    need: ast.stmt
    frame: Frame
    loop: AnyLoop | None

    @property
    def code(self) -> Code:
        return self.frame.code

    @property
    def function(self) -> str:
        return self.frame.spot.function

    @property
    def branch(self) -> tuple[list[ast.stmt], ast.stmt]:
        """The block that runs as often as the backward does, and its statement with it: under ``if step % 4 == 0:``."""
        block, need = self.body, self.need
        while isinstance(need, ast.If) and need is not self.frame.statement:
            block = next(b for b in (need.body, need.orelse) if within(self.code, b, self.frame.statement) is not None)
            need = within(self.code, block, self.frame.statement) or need
        return block, need


def holdings(problem: Problem) -> dict[str, dict[str, str]]:
    """Every name that held a graph at some backward, by function, over all passes."""
    found: dict[str, dict[str, str]] = {}
    for one in problem.evidence.passes:
        for where, names in one.held.items():
            found.setdefault(where, {}).update(names)
    return found


def iterations(problem: Problem) -> Iterator[Iteration]:
    """The loops around the failing backward, the innermost first; then the functions that may be called in turn."""
    stack = problem.needed[::-1]
    blocks: list[tuple[Frame, AnyLoop | Scope]] = [
        (frame, loop) for frame in stack for loop in loops(frame.code, frame.statement)
    ]
    if meeting(problem) is None:
        blocks += [(frame, scope(frame.code, frame.statement)) for frame in stack]
    for frame, around in blocks:
        need = within(frame.code, around.body, frame.statement)
        if need is not None:
            yield Iteration(around.body, need, frame, around if isinstance(around, Loop) else None)
