"""A context that keeps what its block computes is entered in each iteration, and no longer once around the loop.

with parametrize.cached():                for x in loader:
    for x in loader:                          with parametrize.cached():
        net(x).mean().backward()                  net(x).mean().backward()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.blocks import AnyLoop, loops
from ...source.editor import Code, Edit
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_context_each_time")


@register("second_backward", "modified")
def context_each_time(problem: Problem) -> Iterator[Proposal]:
    if any(edge.holders for edge in problem.crossing.over):  # what a name holds is no context's
        return
    for frame in problem.needed:
        for loop in loops(frame.code, frame.statement):
            block = frame.code.parent(loop)
            if isinstance(block, ast.With) and block.body == [loop] and not loop.orelse:
                yield from _swapped(frame.code, block, loop)


def _swapped(code: Code, block: ast.With, loop: AnyLoop) -> Iterator[Proposal]:
    """Two headers change their places; the loop's body stands as deep as before."""
    first = loop.body[0]
    if not block.lineno < loop.lineno < first.lineno:
        return
    begin, end = code.span(block)[0], code.span(first)[0] - len(code.indent(first))
    outer, inner = code.cell.raw[begin : code.span(loop)[0]].rstrip(), code.cell.raw[code.span(loop)[0] : end].rstrip()
    text = code.newline.join([inner, f"{code.indent(loop)}{outer}", ""])
    title = " ".join(part for head in (inner, outer) for part in head.partition("  #")[0].split())
    yield in_one_text(code, [Edit(begin, end, text)], title, _WHY, "context_each_time")
