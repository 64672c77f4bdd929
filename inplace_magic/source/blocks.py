"""What a statement stands in: its blocks, its loops, its function; and the statements of a function or a cell."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from .editor import Code, Def, Function, Loop

AnyLoop = ast.For | ast.While | ast.AsyncFor
Scope = Def | ast.Module


def scope(code: Code, node: ast.AST) -> Scope:
    """The function around a node, or the cell."""
    return code.function(node) or code.tree


def own_statements(code: Code, top: ast.AST) -> Iterator[ast.stmt]:
    """The statements of a function or a cell, without those of functions and classes inside it."""
    for node in ast.iter_child_nodes(top):
        if isinstance(node, ast.stmt):
            yield node
            if isinstance(node, (*Function, ast.ClassDef)):
                continue
        if not isinstance(node, ast.expr):
            yield from own_statements(code, node)


def at_top(block: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a block, with those of a ``with`` in its place."""
    for statement in block:
        yield from at_top(statement.body) if isinstance(statement, ast.With) else (statement,)


def upwards(code: Code, statement: ast.stmt) -> Iterator[ast.stmt]:
    """The statement and those around it, not beyond its function."""
    yield statement
    for above in code.parents(statement):
        if isinstance(above, (*Function, ast.ClassDef)):
            return
        if isinstance(above, ast.stmt):
            yield above


def within(code: Code, block: list[ast.stmt], statement: ast.stmt) -> ast.stmt | None:
    """The statement of the block that is, or holds, this one."""
    return next((above for above in upwards(code, statement) if any(above is s for s in block)), None)


def loops(code: Code, statement: ast.stmt, without: Iterable[ast.stmt] = ()) -> list[AnyLoop]:
    """The loops around a statement within its function, the innermost first; those with none of some other statements."""
    around = [above for above in upwards(code, statement) if isinstance(above, Loop) and above is not statement]
    return [loop for loop in around if not any(loop in upwards(code, other) for other in without)]
