"""What an object stores round after round is stored without its history.

self.messages[n].append(message)          self.messages[n].append(message.detach())
self.messages[n].extend(messages)         self.messages[n].extend([m.detach() for m in messages])
self.memory[i] = hidden                   self.memory[i] = hidden.detach()
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator

from ..source.editor import Code, Edit, Function, atom
from . import Problem, Proposal, register
from .carried_state import holdings

_WHY = "Later rounds take the values alone from what was stored; no gradient goes back into the round that stored them."
_ONE = frozenset({"append", "appendleft", "add"})


@register("second_backward", "modified", rank=27)
def cut_stored(problem: Problem) -> Iterator[Proposal]:
    names = {n for scope, held in holdings(problem).items() if scope.startswith("stored in ") for n in held}
    if not names:
        return
    for code in problem.codes():
        edits = [edit for node in ast.walk(code.tree) if (edit := _cut(code, node, names)) is not None]
        if edits:
            title = edits[0].text if len(edits) == 1 else f"{edits[0].text} and {len(edits) - 1} more"
            yield Proposal(" ".join(title.split()), _WHY, "cut_stored", {code.cell.number: code.apply(*edits)})


def _cut(code: Code, node: ast.AST, names: Container[str]) -> Edit | None:
    """The history taken off what a statement puts into one of the containers."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) == 1:
        if not _is_one(node.func.value, names) or not isinstance(code.function(node), Function):
            return None
        (value,) = node.args
        if node.func.attr in _ONE and _may_have_history(value):
            return code.replace(value, f"{atom(code, value)}.detach()")
        if node.func.attr in ("extend", "extendleft"):
            return code.replace(value, f"[m.detach() for m in {code.text(value)}]")
    into = node.targets[0] if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript) else None
    if isinstance(node, ast.Assign) and into is not None and _is_one(into, names) and _may_have_history(node.value):
        return code.replace(node.value, f"{atom(code, node.value)}.detach()")
    return None


def _is_one(node: ast.expr, names: Container[str]) -> bool:
    while isinstance(node, ast.Subscript):
        node = node.value
    return isinstance(node, ast.Attribute) and node.attr in names


def _may_have_history(value: ast.expr) -> bool:
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        return value.func.attr not in ("detach", "item", "numpy", "tolist")
    return not isinstance(value, (ast.Constant, ast.Tuple, ast.List, ast.Dict))
