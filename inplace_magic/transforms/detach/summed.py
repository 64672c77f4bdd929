"""A sum that is kept for show is sent back: the loss goes back instead, and the sum keeps its values.

total += loss                             total += loss.detach()
total.backward()                          loss.backward()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ...message import message
from ...record.evidence import Edge
from ...source.blocks import loops
from ...source.dataflow import added, calls_named
from ..problem import Frame, Problem
from ..proposal import Proposal
from .candidates import candidates

_SUMMED = message("why_sum_of_values")


def summed(problem: Problem, edges: Sequence[Edge]) -> Iterator[Proposal]:
    """``total += loss; total.backward()``: the loss goes back, the sum keeps its values."""
    for edge in edges:
        for frame in problem.frames(edge.used):
            paths = {h.path for h in edge.holders} | {f"self.{h.path}" for h in edge.holders}
            sum_and_term = added(frame.statement)
            if sum_and_term is None or (total := ast.unparse(sum_and_term[0])) not in paths:
                continue
            code, value = frame.code, sum_and_term[1]
            need = next((f for f in problem.needed if f.code is code), None)
            one_loop = need is not None and loops(code, frame.statement) == loops(code, need.statement)
            roots = _roots_named(need, total) if need is not None and one_loop else []
            if roots and isinstance(value, (ast.Name, ast.Attribute)):
                assert need is not None
                changes = [(code, code.behind(value, ".detach()"))]
                changes += [(code, code.replace(root, code.text(value))) for root in roots]
                yield from candidates(problem, changes, "summed", _SUMMED)
                return


def _roots_named(need: Frame, total: str) -> list[ast.expr]:
    """Where the backward's statement goes back from the sum."""
    return [
        call.func.value
        for call in calls_named(need.statement, "backward")
        if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == total
    ]
