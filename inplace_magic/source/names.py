"""What a name stands for where it is read, and names that stand for nothing yet."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from .blocks import own_statements, scope
from .dataflow import own_items
from .editor import Code, Edit, Function, names_bound


def named(code: Code, name: str, nodes: Iterable[ast.AST]) -> Iterator[ast.Name]:
    """The name below some nodes, as far as it stands for what it stands for around them: not a lambda's own argument."""
    for top in nodes:
        around = scope(code, top)
        for node in ast.walk(top):
            if isinstance(node, ast.Name) and node.id == name and not _is_other(code, node, around):
                yield node


def renamed(code: Code, nodes: Sequence[ast.AST], new: Mapping[str, str]) -> list[Edit]:
    """Other texts for names below some nodes, read and bound ones. An f-string is written anew as a whole: up to Python 3.11
    the places of what stands in it are not known."""
    found = [(node, text) for name, text in new.items() for node in named(code, name, nodes)]
    strings = {node: _string(code, node) for node, _ in found}
    edits = [code.replace(node, text) for node, text in found if strings[node] is None]
    for string in filter(None, dict.fromkeys(strings.values())):
        edits.append(code.replace(string, ast.unparse(_Renamed(new).visit(copy.deepcopy(string)))))
    return edits


class _Renamed(ast.NodeTransformer):
    def __init__(self, new: Mapping[str, str]) -> None:
        self._new = new

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.parse(self._new[node.id], mode="eval").body if node.id in self._new else node


def _string(code: Code, node: ast.AST) -> ast.JoinedStr | None:
    """The outermost f-string that a node stands in."""
    return next((above for above in [*code.parents(node)][::-1] if isinstance(above, ast.JoinedStr)), None)


def first_name(path: str) -> str:
    """``net`` of ``net[0].weight``."""
    return re.split(r"\W", path)[0]


def declared(node: ast.AST) -> set[str]:
    """The names that a function, or code in it, takes from around it by ``global`` or ``nonlocal``."""
    return {name for s in ast.walk(node) if isinstance(s, (ast.Global, ast.Nonlocal)) for name in s.names}


def stores(node: ast.AST, name: str) -> list[ast.Name]:
    """Where code, with the functions in it, gives a name a value."""
    return [n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)]


def own_names(function: ast.AST) -> frozenset[str]:
    """What a function, with those in it, binds for itself: its parameters, and what it assigns without calling it global."""
    given = {n.arg for n in ast.walk(function) if isinstance(n, ast.arg)}
    stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return frozenset((given | stored) - declared(function))


def _is_other(code: Code, node: ast.Name, around: ast.AST) -> bool:
    """Whether something below ``around`` that a name stands in has given the name a meaning of its own."""
    for above in code.parents(node):
        if above is around:
            return False
        if node.id in _own(code, above):
            return True
    return False


def _own(code: Code, node: ast.AST) -> set[str]:
    """The names that a function, a lambda, a class or a comprehension has to itself."""
    if not isinstance(node, (*Function, ast.ClassDef)):
        return own_items(node)
    given = (
        {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)} if isinstance(node, Function) else set()
    )
    return given | (names_bound([*own_statements(code, node)]) - declared(node))


def unused(name: str, code: Code, others: Iterable[str] = ()) -> str:
    """The name, or one like it that neither the cell uses yet nor the others are."""
    taken = {*others} | bound_names(code) | {n.id for n in ast.walk(code.tree) if isinstance(n, ast.Name)}
    return next(n for n in (name, *(f"{name}_{i}" for i in range(2, 100))) if n not in taken)


def bound_names(code: Code) -> set[str]:
    """All that a text gives a name, in whatever scope."""
    stored = (ast.Store, ast.Del)
    found: set[str | None] = set()
    for node in ast.walk(code.tree):
        if isinstance(node, ast.Name):
            found |= {node.id} if isinstance(node.ctx, stored) else set()
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, (*Function, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
            found.add(node.name)
        elif isinstance(node, ast.MatchMapping):
            found.add(node.rest)
    return {name for name in found if name is not None}
