"""Gradients that are part of a graph themselves are let go instead of being filled with zeros.

optimizer.zero_grad(set_to_none=False)    optimizer.zero_grad()
w.grad.zero_()                            w.grad = None
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.dataflow import calls_named, keyword_named
from ...source.editor import Edit
from ..analysis.targets import Site, written
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_drop_gradient")


@register("modified")
def drop_gradient(problem: Problem) -> Iterator[Proposal]:
    write = written(problem)
    edit = _edit(write) if write is not None and write.event.operation.endswith("zero_") else None
    if write is not None and edit is not None:
        yield in_one_text(write.code, [edit], write.statement, _WHY, "drop_gradient")


def _edit(write: Site) -> Edit | None:
    code, held = write.code, write.root_text or ""
    for call in calls_named(write.statement, "zero_grad"):
        if (kept := keyword_named(call, "set_to_none")) is not None:
            return code.without_argument(kept)
    whole = write.target is not None and code.text(write.target) in (held, f"{held}.data")
    alone = whole and isinstance(write.statement, ast.Expr) and held.endswith(".grad")
    return code.replace(write.statement, f"{held} = None") if alone else None
