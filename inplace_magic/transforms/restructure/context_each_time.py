"""A context that keeps what its block computes is entered in each iteration, and no longer once around the loop.

with parametrize.cached():                for x in loader:
    for x in loader:                          with parametrize.cached():
        net(x).mean().backward()                  net(x).mean().backward()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.editor import Code, Edit
from ..analysis.iterations import iterations
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_context_each_time")


@register("second_backward", "modified")
def context_each_time(problem: Problem) -> Iterator[Proposal]:
    if any(edge.holders for edge in problem.crossing.over):  # what a name holds is no context's
        return
    for turn in iterations(problem):
        block = turn.code.parent(turn.loop) if turn.loop is not None and not turn.loop.orelse else None
        if isinstance(block, ast.With) and block.body == [turn.loop]:
            yield from _swapped(turn.code, block, turn.body[0])


def _swapped(code: Code, block: ast.With, first: ast.stmt) -> Iterator[Proposal]:
    """Two headers change their places; the loop's body, which begins with the statement, stands as deep as before."""
    loop = block.body[0]
    if not block.lineno < loop.lineno < first.lineno:
        return
    begin, end = code.span(block)[0], code.span(first)[0] - len(code.indent(first))
    outer, inner = code.cell.raw[begin : code.span(loop)[0]].rstrip(), code.cell.raw[code.span(loop)[0] : end].rstrip()
    text = code.newline.join([inner, f"{code.indent(loop)}{outer}", ""])
    title = " ".join(part for head in (inner, outer) for part in head.partition("  #")[0].split())
    yield in_one_text(code, [Edit(begin, end, text)], title, _WHY, "context_each_time")
