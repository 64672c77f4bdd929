"""One of several results of a call, in the caller's words: called again, the function may draw another one beside it.

action, value = choose(state)             net(encode(state))[action]
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from ...source.bindings import bindings, defaults, given, parameters
from ...source.blocks import own_statements
from ...source.dataflow import called_name
from ...source.editor import Code, atom
from ...source.names import named, own_names, renamed, stores
from ..analysis.targets import root_text, written_by
from ..problem import Frame


def written_out(caller: Frame, called: Frame, item: int) -> str | None:
    """What a function computes for one item of the tuple that it gives, by the names that the caller has for its arguments and
    for the other items. None where it gives several such tuples, changes what it has computed, or needs none of the others.
    """
    code, function = called.code, called.code.function(called.node)
    match caller.statement:
        case ast.Assign([ast.Tuple(names)], ast.Call() as call) if isinstance(function, ast.FunctionDef):
            returns = [s for s in own_statements(code, function) if isinstance(s, ast.Return)]
        case _:
            return None
    values = getattr(returns[0].value, "elts", []) if len(returns) == 1 and called_name(call) == function.name else []
    if len(values) != len(names) or caller.expression is not call:
        return None
    pairs = [pair for at, pair in enumerate(zip(values, names)) if at != item]
    beside = {v.id: n.id for v, n in pairs if isinstance(v, ast.Name) and isinstance(n, ast.Name)}
    known = {name: atom(code, value) for name, value in defaults(function).items()}
    known |= {
        name: atom(caller.code, value) for name, value in given(code, function, call) if value is not None
    } | beside
    text = _in_words(code, function, values[item], known)
    read = {n.id for n in ast.walk(ast.parse(f"({text})")) if isinstance(n, ast.Name)}
    if text is None or not read & set(beside.values()):
        return None
    return f"({text})" if "\n" in text else text


def _in_words(code: Code, function: ast.FunctionDef, value: ast.expr, known: Mapping[str, str]) -> str | None:
    """An expression of a function with the names that it has to itself replaced; None for one that has several values."""
    new: dict[str, str] = {}
    for name in sorted(own_names(function)):
        if not any(named(code, name, [value])):
            continue
        found = bindings(code, name, function.body[-1])
        once = [one.value for one in found if one.statement in function.body and one.value is not None]
        if not _stays(code, function, name) or (name not in known and (len(once) != 1 or any(named(code, name, once)))):
            return None
        text = known[name] if name in known else _in_words(code, function, once[0], known)
        if text is None:
            return None
        plain = name in known or isinstance(once[0], (ast.Name, ast.Attribute, ast.Subscript, ast.Call))
        new[name] = text if plain else f"({text})"
    return code.edited(value, renamed(code, [value], new))


def _stays(code: Code, function: ast.FunctionDef, name: str) -> bool:
    """Whether a name has one value all through a function, which nothing changes."""
    changed = (root_text(code, part) for s in ast.walk(function) for part in written_by(s))
    return len(stores(function, name)) + (name in parameters(function)) == 1 and name not in changed
