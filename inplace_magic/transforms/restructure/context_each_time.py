"""A context that keeps what its block computes is entered in each iteration, and no longer once around the loop.

with parametrize.cached():                for x in loader:
    for x in loader:                          with parametrize.cached():
        net(x).mean().backward()                  net(x).mean().backward()
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from ...message import message
from ...source.blocks import AnyLoop, upwards
from ...source.editor import Code
from ...source.lift import header_lines, unwrapped, wrapped
from ...source.lines import lines_of
from ..analysis.iterations import iterations
from ..analysis.meetings import headline
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_context_each_time")


@register("second_backward", "modified")
def context_each_time(problem: Problem) -> Iterator[Proposal]:
    if any(edge.holders for edge in problem.crossing.over):  # what a name holds is no context's
        return
    for turn in iterations(problem):
        around = upwards(turn.code, turn.loop) if turn.loop is not None and not turn.loop.orelse else ()
        for outermost, block in itertools.pairwise(around):
            if isinstance(block, ast.With) and block.body == [outermost] and turn.loop is not None:
                yield from _inwards(turn.code, block, turn.loop)


def _inwards(code: Code, block: ast.With, loop: AnyLoop) -> Iterator[Proposal]:
    """The block goes from around a loop, or the loops that this one stands in, to the loop's body."""
    head = header_lines(lines_of(code.text(block), keepends=True), block.body[0].lineno - block.lineno)
    inner = wrapped(code, loop.body, "".join(head).rstrip())
    edit = unwrapped(code, block, block.body, [inner], comment=False) if inner is not None else None
    if edit is not None:
        title = f"{headline(code, loop).strip('`')}: {headline(code, block).strip('`')}:"
        yield in_one_text(code, [edit], title, _WHY, "context_each_time")
