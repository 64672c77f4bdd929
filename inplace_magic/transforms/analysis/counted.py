"""The name by which a loop counts its iterations, given to it where there is none."""

from __future__ import annotations

import ast

from ...source.dataflow import called_name
from ...source.editor import Code, Edit, as_item
from ...source.names import bound_names
from ..problem import Problem


def counted(
    problem: Problem, code: Code, loop: ast.For | ast.comprehension, letter: str = "i", rows: str | None = None
) -> tuple[str, list[Edit]]:
    """The name, and the edits by which there is one: ``for i, x in enumerate(xs)``, or ``for i in range(len(xs))`` where what the
    loop goes through is called ``rows``, and the loop's own name for an item is not needed.
    """
    target = loop.target
    first = target.elts[0] if isinstance(target, ast.Tuple) else None
    if isinstance(first, ast.Name) and is_counter(loop, first.id):
        return first.id, []
    index = problem.unused(letter, code, loop)
    if rows is not None and isinstance(target, ast.Name) and "range" not in bound_names(code):
        return index, [code.replace(target, index), code.replace(loop.iter, f"range(len({rows}))")]
    begun = code.replace(target, f"{index}, {as_item(code, target)}")
    return index, [begun, code.replace(loop.iter, f"enumerate({code.text(loop.iter)})")]


def is_counter(loop: ast.For | ast.comprehension, name: str) -> bool:
    """Whether a name counts a loop's iterations from 0: ``i`` of ``for i, x in enumerate(xs)``."""
    match loop.target, loop.iter:
        case ast.Tuple([ast.Name(id=first), _]), ast.Call(args=[_], keywords=[]):
            return first == name and called_name(loop.iter) == "enumerate"
    return False
