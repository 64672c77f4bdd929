"""One loss that two lines send back, one after the other, is sent back once.

loss = closure()                          loss = closure()   # which has called backward
loss.backward()

a, b = update(x), update(y)               a, b = update(x), update(y)   # each sends its own back
total = a + b                             total = a + b
total.backward()

for x in xs:                              for x in xs:
    loss = net(x).mean()                      loss = net(x).mean()
    loss.backward(); opt.step()               loss.backward(); opt.step()
    total += loss                             total += loss
total.backward()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ...gradients.digest import close
from ...message import message
from ...record.evidence import BackwardPass
from ...source.blocks import within
from ..analysis.meetings import headline, meeting
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_one_backward")


@register("second_backward")
def one_backward(problem: Problem) -> Iterator[Proposal]:
    found, freed, at = meeting(problem), problem.clash.freed, problem.clash.need
    if found is None or freed is None or at is None or at.index >= len(problem.evidence.passes):
        return
    over, need, before = problem.crossing.over, problem.evidence.passes[at.index], problem.evidence.passes[: at.index]
    terms = over and all(edge.term for edge in over)
    if not terms or not any(_is_sum(need.value, before[start:]) for start in range(freed.index + 1)):
        return
    for frame in problem.needed:
        statement, code = frame.statement, frame.code
        gone = statement
        while code.block(gone) == [gone] and isinstance(above := code.parent(gone), ast.With):
            gone = above
        inside = within(code, found.block, statement) is found.need
        if inside and isinstance(statement, ast.Expr) and code.block(gone) != [gone]:
            title = message("title_block_gone", block=headline(code, statement))
            yield in_one_text(code, [code.delete(gone)], title, _WHY, "one_backward", meant=True)
            return


def _is_sum(total: tuple[float, ...] | None, terms: Sequence[BackwardPass]) -> bool:
    """Whether a loss is what some backwards have sent back in all."""
    values = [one.value for one in terms if one.value]
    return bool(total) and len(values) == len(terms) > 0 and close(total, tuple(map(sum, zip(*values))))
