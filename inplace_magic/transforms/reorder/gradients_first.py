"""An update by hand between two backwards: both gradients are taken first.

loss_a.backward(retain_graph=True)      grads = torch.autograd.grad(loss_a, params, retain_graph=True)
for p in params:                        loss_b.backward()
    p.data -= lr * p.grad               for p, g in zip(params, grads):
    p.grad = None                           p.data -= lr * g
loss_b.backward()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.dataflow import is_call
from ...source.editor import Code, Edit
from ...source.lift import lift, unused
from ..analysis.meetings import Meeting, meeting
from ..analysis.targets import torch_name
from ..problem import Problem
from ..proposal import Proposal
from ..registry import register

_WHY = message("why_gradients_first")


@register("silent")
def both_gradients(problem: Problem) -> Iterator[Proposal]:
    found = meeting(problem)
    if found is None or not isinstance(found.first, ast.For) or not is_call(found.need, "backward"):
        return
    code, loop = found.code, found.first
    before = next((s for s in reversed(found.before) if not is_call(s, "zero_grad")), None)
    if before is None or not is_call(before, "backward") or not isinstance(loop.target, ast.Name) or loop.orelse:
        return
    name, grads, g = loop.target.id, unused("grads", code), unused("g", code)
    resets = [s for s in loop.body if _resets(s, name)]
    kept = [s for s in loop.body if s not in resets]
    makers = [s for s in found.between if any(s is one for one in found.loss)]
    lifted = lift(code, [*makers, found.need])
    if not resets or not kept or lifted is None or not all(code.alone(s) for s in (*loop.body, loop, before)):
        return
    items = code.text(loop.iter)
    everything = f"list({items})" if isinstance(loop.iter, ast.Call) else items
    loss = code.text(before.value.func.value)  # type: ignore[attr-defined]
    taken = f"{grads} = {torch_name(problem) or 'torch'}.autograd.grad({loss}, {everything}, retain_graph=True)"
    edits = [
        code.replace(before, taken),
        _before(found, lifted.text),
        *lifted.edits,
        code.replace(loop.target, f"{name}, {g}"),
        code.replace(loop.iter, f"zip({items}, {grads})"),
        *(code.delete(s) for s in resets),
        *(code.replace(node, g) for s in kept for node in _gradients(code, s, name)),
    ]
    yield Proposal(
        message("title_before", what=taken, other=message("the_update")),
        _WHY,
        "silent_gradients",
        {code.cell.number: code.apply(*edits)},
    )


def _before(found: Meeting, text: str) -> Edit:
    indent = found.code.indent(found.first)
    return found.code.insert_before(
        found.first, *(line.removeprefix(indent) for line in text.splitlines() if line.strip())
    )


def _resets(statement: ast.stmt, name: str) -> bool:
    """``p.grad = None``, ``p.grad.zero_()``, ``p.grad.data.zero_()``."""
    if isinstance(statement, ast.Assign):
        return len(statement.targets) == 1 and _is_gradient(statement.targets[0], name)
    if not is_call(statement, "zero_"):
        return False
    held = statement.value.func.value  # type: ignore[attr-defined]
    return _is_gradient(held, name)


def _gradients(code: Code, statement: ast.stmt, name: str) -> list[ast.AST]:
    """Where a statement uses ``p.grad`` or ``p.grad.data``, the outermost of nested ones."""
    found = [node for node in ast.walk(statement) if _is_gradient(node, name)]
    return [node for node in found if code.parent(node) not in found]


def _is_gradient(node: ast.AST, name: str) -> bool:
    if not isinstance(node, ast.Attribute):
        return False
    if node.attr == "data":
        return _is_gradient(node.value, name)
    return node.attr == "grad" and isinstance(node.value, ast.Name) and node.value.id == name
