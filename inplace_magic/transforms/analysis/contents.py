"""What a list, a dict or a tuple holds: what it was filled with, and the same with another item."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from ...source.bindings import gone_through, loop_of
from ...source.dataflow import called_name
from ...source.editor import Code, dotted
from ..problem import Problem
from .meant import reads_itself
from .meetings import updates_weights
from .targets import Site, chain

_ALIASES = frozenset({"detach", "numpy", "from_numpy", "as_tensor", "from_dlpack", "asarray", "data"})
OWN_MEMORY = frozenset({"clone", "copy", "contiguous", "tolist"})


def updates_by_another_look(problem: Problem, write: Site) -> bool:
    """Whether weights are updated through what holds another look at their memory: ``flat[n].sub_(g)`` for ``p.detach()``.

    Made out of place, or on a copy, such an update would no longer reach them.
    """
    name = container(write)
    if name is None or not updates_weights(problem) or reads_itself(problem, write):
        return False
    return any(shares(value) for _, value in put_into(problem, write, name))


def container(write: Site) -> str | None:
    """The list or dict that the written tensor is an item of."""
    if write.root_text is None or isinstance(write.target, ast.Subscript):
        return write.root_text
    loop = loop_of(write.code, write.statement, write.root_text)
    given = gone_through(loop, write.root_text) if loop is not None else None
    of_dict = isinstance(given, ast.Call) and called_name(given) in ("items", "values")
    through = given.func.value if of_dict and isinstance(given.func, ast.Attribute) else given  # type: ignore[union-attr]
    return dotted(through) if through is not None else None


def put_into(problem: Problem, write: Site, name: str) -> Iterator[tuple[Code, ast.expr]]:
    """What a container was made of, and what was put into it."""
    for code, binding in problem.bindings(write.code, name, write.statement):
        yield from ((code, value) for value in _items(binding.value))
    for code, node in problem.nodes(ast.Assign):
        if any(isinstance(one, ast.Subscript) and code.text(one.value) == name for one in node.targets):
            yield code, node.value
    for code, call in problem.nodes(ast.Call):
        if called_name(call) == "append" and len(call.args) == 1 and code.text(call.func) == f"{name}.append":
            yield code, call.args[0]


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


def index_of(item: ast.Subscript) -> int | None:
    """The item's number, where it is written out."""
    value = item.slice.value if isinstance(item.slice, ast.Constant) else None
    return value if type(value) is int and value >= 0 else None


def with_item(code: Code, item: ast.expr, new: str) -> str:
    """A tuple with ``new`` in the place of its ``item``: ``(*grads[:1], new, *grads[2:])``; of what is no item, ``new`` itself."""
    index = index_of(item) if isinstance(item, ast.Subscript) else None
    if not isinstance(item, ast.Subscript) or index is None:
        return new
    name = code.text(item.value)
    before = f"*{name}[:{index}], " if index else ""
    return f"({before}{new}, *{name}[{index + 1}:])"
