"""One of several results of a call, in the caller's words: called again, the function may draw another one beside it.

action, value = choose(state)             net(encode(state))[action]
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from ...source.bindings import bindings, defaults, given
from ...source.blocks import own_statements
from ...source.editor import Code, atom
from ...source.names import own_names, renamed
from ..problem import Frame


def written_out(caller: Frame, called: Frame, item: int) -> str | None:
    """What a function computes for one item of the tuple that it gives, by the names that the caller has for its arguments and
    for the other items. None where it gives it in branches, or computes it of none of the others.
    """
    code, function = called.code, called.code.function(called.node)
    match caller.statement:
        case ast.Assign([ast.Tuple(names)], ast.Call() as call) if isinstance(function, ast.FunctionDef):
            returns = [s for s in own_statements(code, function) if isinstance(s, ast.Return)]
        case _:
            return None
    values = getattr(returns[0].value, "elts", []) if len(returns) == 1 else []
    if len(values) != len(names):
        return None
    beside = {
        value.id: name.id
        for value, name in zip(values, names)
        if isinstance(value, ast.Name) and isinstance(name, ast.Name)
    }
    known = {name: atom(code, value) for name, value in defaults(function).items()}
    known |= {
        name: atom(caller.code, value) for name, value in given(code, function, call) if value is not None
    } | beside
    text = _in_words(code, function, values[item], known)
    read = {n.id for n in ast.walk(ast.parse(text or "")) if isinstance(n, ast.Name)}
    return text if read & set(beside.values()) else None


def _in_words(code: Code, function: ast.FunctionDef, value: ast.expr, known: Mapping[str, str]) -> str | None:
    """An expression of a function with the names that it has to itself replaced; None for one that has several values."""
    new: dict[str, str] = {}
    for name in {n.id for n in ast.walk(value) if isinstance(n, ast.Name)} & own_names(function):
        found = bindings(code, name, function.body[-1]) if name not in known else []
        once = [one.value for one in found if one.statement in function.body and one.value is not None]
        text = known.get(name) or (_in_words(code, function, once[0], known) if len(found) == len(once) == 1 else None)
        if text is None:
            return None
        plain = name in known or isinstance(once[0], (ast.Name, ast.Attribute, ast.Subscript, ast.Call))
        new[name] = text if plain else f"({text})"
    return code.edited(value, renamed(code, [value], new))
