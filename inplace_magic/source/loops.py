"""Loops in the text of a document: the one around a line, the same one after a rewrite, its body run by itself."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

AGAIN, ANEW = "_inplace_magic_again", "_inplace_magic_anew"
"""Names that the body alone calls: to run with the same values of its targets, or with the first ones of a new iterator."""

LoopNode = (ast.For, ast.AsyncFor, ast.While)
FunctionNode = (ast.FunctionDef, ast.AsyncFunctionDef)
_Definition = (*FunctionNode, ast.ClassDef)
_N = TypeVar("_N", bound=ast.AST)


@dataclass(frozen=True)
class Loop:
    """Which loop: in which function (its qualified name; None at the top), by its header, counted among equal ones."""

    function: str | None
    header: str
    ordinal: int
    line: int


@dataclass(frozen=True)
class Step:
    """One block on the way from the function's body to the loop, and the place of the statement that leads on."""

    block: list[ast.stmt]
    index: int

    @property
    def statement(self) -> ast.stmt:
        return self.block[self.index]


def function_at(tree: ast.Module, name: str, line: int) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The innermost function of this qualified name around a line."""
    found = [f for qualified, f in _functions(tree) if qualified == name and _first(f) <= line <= (f.end_lineno or 0)]
    return found[-1] if found else None


def function_of(tree: ast.Module, loop: Loop) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The function that a loop stands in, also where a rewrite has moved its lines."""
    named = [f for name, f in _functions(tree) if name == loop.function]
    around = [f for f in named if _first(f) <= loop.line <= (f.end_lineno or 0)]
    return next(iter([*around, *named]), None)


def loops_around(tree: ast.Module, function: str | None, line: int) -> list[Loop]:
    """The loops whose bodies hold a line, innermost first."""
    owner = tree if function is None else function_at(tree, function, line)
    if owner is None:
        return []
    nodes = list(_loops(owner.body))
    return [
        Loop(function, _header(node), _ordinal(nodes, node), node.lineno)
        for node in reversed(nodes)
        if node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0)
    ]


def way_to(tree: ast.Module, loop: Loop) -> list[Step] | None:
    """The blocks that lead to a loop; None where a rewrite has left none that is certainly the same."""
    owners = [tree] if loop.function is None else [f for name, f in _functions(tree) if name == loop.function]
    for owner in owners:
        nodes = list(_loops(owner.body))
        alike = [node for node in nodes if _header(node) == loop.header]
        if loop.ordinal < len(alike) and (len(owners) == 1 or alike[loop.ordinal].lineno == loop.line):
            return _way(owner.body, alike[loop.ordinal])
    return None


def contexts_around(tree: ast.Module, function: str | None, line: int) -> list[ast.withitem]:
    """What the ``with`` statements around a line enter, the outermost first."""
    owner = tree if function is None else function_at(tree, function, line)
    if owner is None:
        return []
    statements = [s for s in _own_statements(owner.body) if isinstance(s, ast.With)]
    return [item for s in statements if s.body[0].lineno <= line <= (s.end_lineno or 0) for item in s.items]


def body_alone(before: list[Step], now: list[Step], anew: bool) -> list[ast.stmt] | None:
    """The loop with what surrounds it of ``with``, and the new statements ahead of it, to be run by itself.

    ``before`` is the way to it as it ran, ``now`` in the rewritten text. None where a statement behind the loop has
    changed, which would not be run.
    """
    if len(before) != len(now):
        return None
    body: list[ast.stmt] = [_alone(now[-1].statement, anew)]
    for old, new in zip(reversed(before), reversed(now)):
        if new is not now[-1] and isinstance(new.statement, ast.With):
            body = [_at(ast.With(new.statement.items, body), new.statement)]
        if _dumps(old.block[old.index + 1 :]) != _dumps(new.block[new.index + 1 :]):
            return None
        known = _dumps(old.block[: old.index])
        ahead = [s for s in new.block[: new.index] if not isinstance(s, _Definition) and ast.dump(s) not in known]
        body = [*ahead, *body]
    return body


def as_function(
    function: ast.FunctionDef | ast.AsyncFunctionDef, body: list[ast.stmt], local: list[str], free: list[str]
) -> ast.Module:
    """A module that defines the function with another body, every local name an argument of it, in this order.

    ``free`` are names of functions around it: they are arguments of a function around it.
    """
    declared = [s for s in _own_statements(function.body) if isinstance(s, ast.Global | ast.Nonlocal)]
    inner = copy.copy(function)
    inner.args, inner.body = _arguments(local), [*declared, *body]
    inner.decorator_list, inner.returns = [], None
    given = ast.parse("def around(): return None").body[0]
    assert isinstance(given, ast.FunctionDef)
    given.args = _arguments(free)
    given.body = [inner, _at(ast.Return(ast.Name(function.name, ast.Load())), function)]
    return ast.fix_missing_locations(ast.Module([given], []))


# ---- statements -----------------------------------------------------------------------------------------------------


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    def visit(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, FunctionNode):
                yield prefix + child.name, child
                yield from visit(child, f"{prefix}{child.name}.<locals>.")
            else:
                yield from visit(child, f"{prefix}{child.name}." if isinstance(child, ast.ClassDef) else prefix)

    return visit(tree, "")


def _first(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return min([function.lineno, *(d.lineno for d in function.decorator_list)])


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The blocks of a statement that run in the scope that it stands in."""
    if isinstance(statement, _Definition):
        return
    for name in ("body", "orelse", "finalbody"):
        block = getattr(statement, name, None)
        if isinstance(block, list):
            yield block
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield part.body


def _own_statements(block: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in block:
        yield statement
        for inner in _blocks(statement):
            yield from _own_statements(inner)


def _loops(block: list[ast.stmt]) -> Iterator[ast.For | ast.AsyncFor | ast.While]:
    return (s for s in _own_statements(block) if isinstance(s, LoopNode))


def _header(loop: ast.stmt) -> str:
    if isinstance(loop, ast.While):
        return ast.unparse(loop.test)
    assert isinstance(loop, ast.For | ast.AsyncFor)
    return f"{ast.unparse(loop.target)} in {ast.unparse(loop.iter)}"


def _ordinal(loops: list[ast.For | ast.AsyncFor | ast.While], loop: ast.stmt) -> int:
    return [one for one in loops if _header(one) == _header(loop)].index(loop)  # type: ignore[arg-type]


def _way(block: list[ast.stmt], loop: ast.stmt) -> list[Step] | None:
    for index, statement in enumerate(block):
        if statement is loop:
            return [Step(block, index)]
        for inner in _blocks(statement):
            way = _way(inner, loop)
            if way is not None:
                return [Step(block, index), *way]
    return None


def _dumps(block: list[ast.stmt]) -> list[str]:
    return [ast.dump(s) for s in block if not isinstance(s, _Definition)]


# ---- what is built --------------------------------------------------------------------------------------------------


def _alone(loop: ast.stmt, anew: bool) -> ast.stmt:
    """The loop over as many iterations as the one who runs it wants, without what follows when it comes to its end."""
    if isinstance(loop, ast.While):
        target: ast.expr = ast.Name("_inplace_magic_turn", ast.Store())
        values: ast.expr = ast.Call(ast.Name(AGAIN, ast.Load()), [ast.Constant(None)], [])
    else:
        assert isinstance(loop, ast.For | ast.AsyncFor)
        target = loop.target
        if anew and isinstance(loop, ast.For):
            values = ast.Call(ast.Name(ANEW, ast.Load()), [loop.iter], [])
        else:
            values = ast.Call(ast.Name(AGAIN, ast.Load()), [_read(target)], [])
    return _at(ast.For(target, values, loop.body, []), loop)


def _read(target: ast.expr) -> ast.expr:
    """What a target holds, as an expression."""
    read = copy.deepcopy(target)
    for node in ast.walk(read):
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Starred | ast.Tuple | ast.List):
            node.ctx = ast.Load()
    return read


def _arguments(names: list[str]) -> ast.arguments:
    return ast.arguments([], [ast.arg(name) for name in names], None, [], [], None, [])


def _at(node: _N, place: ast.AST) -> _N:
    return ast.fix_missing_locations(ast.copy_location(node, place))
