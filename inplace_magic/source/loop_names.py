"""Names that only loops bind, for their own bodies: nobody misses them once the loop is over."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from .dataflow import own_items
from .names import own_names

_Scopes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def passing_names(trees: Iterable[ast.Module]) -> frozenset[str]:
    """The names that the cells' ``for`` loops bind, and that nothing outside of such a loop binds or reads."""
    inside: set[str] = set()
    outside: set[str] = set()
    for tree in trees:
        _visit(tree, frozenset(), inside, outside)
    return frozenset(inside - outside)


def _visit(node: ast.AST, bound: frozenset[str], inside: set[str], outside: set[str]) -> None:
    if isinstance(node, (ast.For, ast.AsyncFor)):
        targets = {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
        inside |= targets
        _visit(node.iter, bound, inside, outside)
        for statement in node.body:
            _visit(statement, bound | targets, inside, outside)
        for statement in node.orelse:
            _visit(statement, bound, inside, outside)
        return
    if isinstance(node, ast.Name) and node.id not in bound:
        outside.add(node.id)
    bound |= own_names(node) if isinstance(node, _Scopes) else own_items(node)
    for child in ast.iter_child_nodes(node):
        _visit(child, bound, inside, outside)
