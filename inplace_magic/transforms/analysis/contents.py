"""What a list, a dict or a tuple holds: what it was filled with, and the same with another item."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from ...source.bindings import gone_through, loop_of
from ...source.dataflow import called_name
from ...source.editor import Code, dotted
from ..problem import Problem
from .targets import Site, chain

_ALIASES = frozenset({"detach", "numpy", "from_numpy", "as_tensor", "from_dlpack", "asarray", "data"})
_PUTS = frozenset({"append", "appendleft", "extend", "extendleft", "insert", "add", "update", "setdefault", "copy_"})
OWN_MEMORY = frozenset({"clone", "copy", "contiguous", "tolist"})


def put(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """A container, and what a statement puts into it: ``bank.append(z)``, ``bank[k] = z``, ``buffer.copy_(z)``."""
    match node:
        case ast.Assign([ast.Subscript(into), *_], value):
            yield into, value
        case ast.Expr(ast.Call(ast.Attribute(into, method), [*_, value])) if method in _PUTS:
            yield into, value


def container(write: Site) -> str | None:
    """The list or dict that the written tensor is an item of."""
    if write.root_text is None or isinstance(write.target, ast.Subscript):
        return write.root_text
    match given := gone_through(loop_of(write.code, write.statement, write.root_text), write.root_text):
        case ast.Call(ast.Attribute(of_dict, "items" | "values")):
            return dotted(of_dict)
    return dotted(given)


def put_into(problem: Problem, write: Site, name: str) -> Iterator[tuple[Code, ast.expr]]:
    """What a container was made of, and what was put into it."""
    for code, binding in problem.bindings(write.code, name, write.statement):
        yield from ((code, value) for value in _items(binding.value))
    for code, node in problem.nodes(ast.stmt):
        yield from ((code, value) for into, value in put(node) if code.text(into) == name)


def _items(made: ast.expr | None) -> list[ast.expr]:
    match made:
        case ast.ListComp(elt=value) | ast.GeneratorExp(elt=value) | ast.DictComp(value=value):
            return [value]
        case ast.List(elts=values) | ast.Tuple(elts=values) | ast.Dict(values=values):
            return values
        case ast.Call(args=[of]) if called_name(made) in ("list", "tuple", "dict"):
            return _items(of)
    return [made] if made is not None and called_name(made) == "state_dict" else []


def shares(value: ast.expr) -> bool:
    """Whether an expression's chain holds one of the ways to share memory past the graph, and no copy behind it."""
    names = (called_name(node) or getattr(node, "attr", "") for node in chain(value))
    return any(name in _ALIASES for name in itertools.takewhile(lambda name: name not in OWN_MEMORY, names))


def index_of(item: ast.expr) -> int | None:
    """The item's number, where it is written out."""
    value = getattr(getattr(item, "slice", None), "value", None)
    return value if type(value) is int and value >= 0 else None


def with_item(code: Code, item: ast.expr, new: str) -> str:
    """A tuple with ``new`` in the place of its ``item``: ``(*grads[:1], new, *grads[2:])``; of what is no item, ``new`` itself."""
    index = index_of(item)
    if not isinstance(item, ast.Subscript) or index is None:
        return new
    name = code.text(item.value)
    before = f"*{name}[:{index}], " if index else ""
    return f"({before}{new}, *{name}[{index + 1}:])"
