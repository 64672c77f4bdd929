"""What statements can be made behind others: no name on the way is changed that they read, or read that they make.

out = D(fake)
D.train()                                 # out = D(fake) stays ahead of this,
fake = augment(fake)                      # and of this
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ...source.bindings import parameters
from ...source.dataflow import binds, key_of, reads
from ...source.editor import Code, Function
from .targets import written_by


def may_pass(code: Code, moved: Sequence[ast.stmt], others: Sequence[ast.stmt], event: ast.stmt | None) -> bool:
    """Whether the moved statements may run behind the others, by the names that they read and make.

    The event, which they are to come behind, may act on what they call: an optimizer steps its weights.
    """
    made = {name for s in moved for name in binds(s)}
    needed = {name for s in moved for name in reads(s)}
    if any(binds(one) & (needed | made) or reads(one) & made for one in others):
        return False
    acted_on = {name for one in others for name in _acted_on(one, event)}
    return not acted_on & (needed - _instance(code, moved[0]))


def _instance(code: Code, statement: ast.stmt) -> set[str]:
    """The name of the object whose method a statement is in. What the method calls on it is taken to leave it as it is."""
    function = code.function(statement)
    if not isinstance(function, Function) or not isinstance(code.parent(function), ast.ClassDef):
        return set()
    return set() if function.decorator_list else set(parameters(function)[:1])


def _acted_on(statement: ast.stmt, event: ast.stmt | None) -> Iterator[str]:
    """What a statement writes in place, or calls, or hands to something, for nothing but what that does: ``net.train()``."""
    todo: list[ast.AST] = [statement]
    while todo:
        node = todo.pop()
        if node is event:
            continue
        todo += ast.iter_child_nodes(node)
        given: list[ast.expr] = written_by(node)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            given = [*node.value.args, *(k.value for k in node.value.keywords)]
            given += [node.value.func.value] if isinstance(node.value.func, ast.Attribute) else []
        yield from (key for one in given if (key := key_of(one)) is not None)
