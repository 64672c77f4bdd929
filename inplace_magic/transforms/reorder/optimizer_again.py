"""An optimizer is made once the model has the parameters that it is to step.

optimizer = SGD(net.parameters(), 0.1)    net.head = nn.Linear(4, 2)
net.head = nn.Linear(4, 2)                optimizer = SGD(net.parameters(), 0.1)
for x, y in data:                         for x, y in data:
    ...                                       ...

What is made of the optimizer goes with it (a scheduler). Where the two stand in cells of their own, the cell that steps makes the
optimizer once more.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.blocks import within
from ...source.dataflow import binds, reads
from ...source.editor import Code, dotted
from ...source.lift import lift, moved
from ..analysis.meetings import headline
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_optimizer_again")


@register("silent")
def optimizer_again(problem: Problem) -> Iterator[Proposal]:
    write = problem.clash.write
    if write is None or (write.how != "replaced" and (write.how, write.operation) != ("untrained", "step")):
        return
    for step in problem.lost:
        call = step.expression
        steps = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "step"
        name = dotted(call.func.value) if steps else None  # type: ignore[attr-defined]
        made = next(problem.bindings(step.code, name, step.statement), None) if name is not None else None
        if made is None or not isinstance(made[1].value, ast.Call):
            continue
        code, statement = made[0], made[1].statement
        if code is step.code and code.function(statement) is code.function(step.statement):
            first = within(code, code.block(statement), step.statement)
            if first is not None and first is not statement:
                title = message("title_before", what=code.text(statement), other=headline(code, first))
                yield in_one_text(
                    code, moved(code, _with_users(code, statement, first), first), title, _WHY, "optimizer_again"
                )
        else:
            first = within(step.code, step.code.tree.body, step.statement)
            if first is not None and code.function(statement) is None:
                edit = step.code.insert_before(first, *lift(code, [statement]).lines)
                yield in_one_text(step.code, [edit], code.text(statement), _WHY, "optimizer_again")


def _with_users(code: Code, made: ast.stmt, until: ast.stmt) -> list[ast.stmt]:
    """A statement, and those of its block up to another one that read what it binds, or what these bind."""
    block = code.block(made)
    found, names = [made], binds(made)
    for statement in block[block.index(made) + 1 : block.index(until)]:
        if reads(statement) & names:
            found.append(statement)
            names |= binds(statement)
    return found
