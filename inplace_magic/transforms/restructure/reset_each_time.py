"""What a branch makes anew with each update is made anew behind each backward.

for step, x in enumerate(batches):        for step, x in enumerate(batches):
    ...                                       ...
    loss.backward()                           loss.backward()
    if (step + 1) % 4 == 0:                   bank.clear()
        optimizer.step()                      if (step + 1) % 4 == 0:
        optimizer.zero_grad()                     optimizer.step()
        bank.clear()                              optimizer.zero_grad()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.dataflow import given_to, is_call
from ...source.lift import moved
from ..analysis.iterations import iterations
from ..analysis.meetings import headline
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register


@register("second_backward", "modified")
def reset_each_time(problem: Problem) -> Iterator[Proposal]:
    for turn in iterations(problem):
        branches = [s for s in turn.code.following(turn.need) if isinstance(s, ast.If) and not s.orelse]
        for branch in branches:
            resets = [s for s in branch.body if _begins_anew(s)]
            if resets:
                what = tuple(headline(turn.code, s) for s in resets)
                title = message("title_before", what=what, other=headline(turn.code, branch))
                edits = moved(turn.code, resets, branch)
                yield in_one_text(turn.code, edits, title, message("why_fresh_state_behind"), "reset_each_time")


def _begins_anew(statement: ast.stmt) -> bool:
    """``bank.clear()``, ``losses = []``, ``total = 0``: it asks for nothing that has been computed."""
    if isinstance(statement, ast.Assign):
        return not any(isinstance(n, (ast.Name, ast.Attribute)) for n in ast.walk(statement.value))
    called = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and not given_to(statement.value)
    return called and not is_call(statement, "step", "zero_grad")
