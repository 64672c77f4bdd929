"""Gradients that are part of a graph themselves are let go instead of being filled with zeros.

optimizer.zero_grad(set_to_none=False)    optimizer.zero_grad()
w.grad.zero_()                            w.grad = None
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.dataflow import calls_named
from ...source.editor import Edit
from ..analysis.targets import Site, written
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_drop_gradient")


@register("modified")
def drop_gradient(problem: Problem) -> Iterator[Proposal]:
    event, write = problem.clash.write, written(problem)
    edit = _edit(write) if event is not None and write is not None and event.operation.endswith("zero_") else None
    if write is not None and edit is not None:
        title = write.code.edited(write.statement, [edit])
        yield in_one_text(write.code, [edit], title, _WHY, "drop_gradient")


def _edit(write: Site) -> Edit | None:
    code, statement = write.code, write.statement
    for call in calls_named(statement, "zero_grad"):
        for keyword in call.keywords:
            if keyword.arg == "set_to_none":
                return code.without_argument(keyword)
    held, target = write.root_text or "", write.target
    whole = target is not None and isinstance(statement, ast.Expr) and code.text(target) in (held, f"{held}.data")
    return code.replace(statement, f"{held} = None") if whole and held.endswith(".grad") else None
