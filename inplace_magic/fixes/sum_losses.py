"""Two losses on one graph: one backward of their sum gives the same gradients, in one walk.

loss_a.backward()                         (loss_a + loss_b).backward()
loss_b.backward()

for loss in losses:                       sum(losses).backward()
    loss.backward()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from . import Problem, Proposal, register
from .code import Code, atom
from .flow import binds, calls_named, frames, is_call, meeting, reads, steps_between

_WHY = "One backward goes through the shared graph once; the gradients are the sum of both, as before."


@register("second_backward", rank=12)
def sum_losses(problem: Problem) -> Iterator[Proposal]:
    if steps_between(problem):
        return
    found = meeting(problem)
    if found is None:
        yield from _whole_loop(problem)
        return
    code = found.code
    first, second = _root(found.first), _root(found.need)
    if first is None or second is None:
        return
    if any(
        calls_named(s, "zero_grad", "clip_grad_norm_", "clip_grad_value_") or binds(s) & reads(first)
        for s in found.between
    ):
        return
    text = f"({_term(code, first)} + {_term(code, second)}).backward()"
    yield Proposal(
        text,
        _WHY,
        "sum_losses",
        {code.cell.number: code.apply(code.delete(found.first), code.replace(found.need, text))},
    )


def _whole_loop(problem: Problem) -> Iterator[Proposal]:
    """A loop that does nothing but call backward on one loss after the other."""
    for code, statement in frames(problem, problem.need_stack):
        loop = code.parent(statement)
        root = _root(statement)
        if not isinstance(loop, ast.For) or loop.body != [statement] or loop.orelse or root is None:
            continue
        if isinstance(root, ast.Name) and isinstance(loop.target, ast.Name) and root.id == loop.target.id:
            text = f"sum({code.text(loop.iter)}).backward()"
            yield Proposal(text, _WHY, "sum_losses", {code.cell.number: code.apply(code.replace(loop, text))})


def _root(statement: ast.stmt) -> ast.expr | None:
    """The loss of a statement that is nothing but ``loss.backward()``; None for any other."""
    if not is_call(statement, "backward"):
        return None
    call: ast.Call = statement.value  # type: ignore[attr-defined]
    if call.args or any(k.arg not in ("retain_graph",) for k in call.keywords):
        return None
    return call.func.value  # type: ignore[attr-defined]


def _term(code: Code, node: ast.expr) -> str:
    if (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, (ast.Add, ast.Mult, ast.Div, ast.MatMult))
        and "\n" not in code.text(node)
    ):
        return code.text(node)
    return atom(code, node)
