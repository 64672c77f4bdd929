"""What statements can be made behind others: nothing on the way changes what they read, or reads what they make.

out = D(fake)
D.train()                                 # out = D(fake) stays ahead of this,
fake = augment(fake)                      # and of this
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ...source.bindings import parameters
from ...source.dataflow import binds, calls, key_of, reads
from ...source.editor import Code
from .targets import is_functional, written_by


def may_pass(code: Code, moved: Sequence[ast.stmt], others: Sequence[ast.stmt], event: ast.stmt | None) -> bool:
    """Whether the moved statements may run behind the others. The event, which they are to come behind, may act on what
    they call: an optimizer steps its weights.
    """
    made = {name for s in moved for name in binds(s)}
    needed = {name for s in moved for name in reads(s)} - _instance(code, moved[0])
    called = {key for s in moved for key in _owners(s)} & needed
    for one in others:
        if binds(one) & (needed | made) or reads(one) & made:
            return False
        if one is not event and (set(_acted_on(one)) & needed or set(_owners(one)) & called):
            return False
    return True


def _instance(code: Code, statement: ast.stmt) -> set[str]:
    """The name of the object whose method a statement is in. What the method calls on it is taken to leave it as it is."""
    function = code.function(statement)
    return (
        set(parameters(function)[:1])
        if function is not None and isinstance(code.parent(function), ast.ClassDef)
        else set()
    )


def _owners(statement: ast.stmt) -> Iterator[str]:
    """The objects of which a statement calls methods."""
    for call in calls(statement):
        if isinstance(call.func, ast.Attribute) and not is_functional(call.func.value):
            key = key_of(call.func.value)
            if key is not None:
                yield key


def _acted_on(statement: ast.stmt) -> Iterator[str]:
    """What a statement writes in place, or calls, or hands to something, for nothing but what that does: ``net.train()``."""
    for node in ast.walk(statement):
        given: list[ast.expr] = written_by(node)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            given = [*node.value.args, *(k.value for k in node.value.keywords)]
            given += [node.value.func.value] if isinstance(node.value.func, ast.Attribute) else []
        yield from (key for one in given if (key := key_of(one)) is not None)
