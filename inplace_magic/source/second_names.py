"""What a write in place changes for code that reads on: other names of the tensor, and the tensor beside the result."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from .bindings import later, parameters
from .blocks import own_statements, upwards
from .dataflow import called_name, given_to, key_of, live_in, rebinds, receiver
from .editor import Code, Function

# What a tensor is asked without a look at its values.
_ABOUT = frozenset(
    {"shape", "device", "dtype", "ndim", "layout", "is_cuda", "requires_grad", "grad_fn", "size", "dim", "numel"}
)
_ABOUT_CALLS = frozenset({"len", "isinstance", "type", "id"})


@dataclass(frozen=True)
class ReadOn:
    """``name`` is what a tensor may be written by; ``others`` are read later for their values.

    ``beside``: the result of the call goes into a value, and the name is read later: ``h = o * c.tanh_()``.
    """

    name: str
    others: frozenset[str]
    beside: bool


def read_on(code: Code, node: ast.AST) -> tuple[ReadOn, ...]:
    """What is read behind the write, or the call, that a node is: for each name that may be written by it."""
    statement = code.statement(node)
    values = _values(later(code, statement)) & live_after(code, statement)
    beside = values - rebinds(statement) if _goes_on(node, statement) else set()
    names = {key for one in _written(node) if (key := key_of(one)) is not None}
    return tuple(ReadOn(name, frozenset(values - {name}), name in beside) for name in sorted(names))


def returned_argument(code: Code, node: ast.AST, name: str) -> bool:
    """Whether the function around a node is handed what it calls ``name``, and gives it back."""
    function = code.function(node)
    if not isinstance(function, Function) or name not in parameters(function):
        return False
    returned = [one.value for one in own_statements(code, function) if isinstance(one, ast.Return)]
    return any(isinstance(value, ast.Name) and value.id == name for value in returned)


def live_after(code: Code, statement: ast.stmt) -> set[str]:
    """Names whose values behind a statement are read, in its function or cell."""
    found: set[str] = set()
    gone: set[str] = set()
    for above in upwards(code, statement):
        if above is not statement and isinstance(above, (ast.For, ast.AsyncFor, ast.While)):
            found |= live_in(above.body) - gone
        rest = code.following(above)
        found |= live_in(rest) - gone
        gone |= rebinds(*rest)
    return found


def _written(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Expr):
        node = node.value
    if isinstance(node, ast.AugAssign):
        return [node.target]
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        node = node.targets[0]
    if isinstance(node, ast.Subscript):
        return [node.value]
    if isinstance(node, ast.Call) and called_name(node).endswith("_"):
        return [one for one in [receiver(node)] if one is not None]
    return given_to(node)  # ``F.relu(x, inplace=True)``, ``self.relu(x)``, ``normalized(x)``


def _goes_on(node: ast.AST, statement: ast.stmt) -> bool:
    """Whether the result of a call is a part of what its statement makes; ``x.add_(y).mul_(z)`` stands for the sake of x."""
    chain: ast.AST | None = getattr(statement, "value", None) if isinstance(statement, ast.Expr) else None
    while chain is not node and isinstance(chain, ast.Call) and called_name(chain).endswith("_"):
        chain = receiver(chain)
    return isinstance(node, ast.Call) and chain is not node


def _values(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that are read below some nodes, other than for a shape, or to see whether there is anything."""
    found: set[str] = set()
    for top in nodes:
        about = {id(n.value) for n in ast.walk(top) if isinstance(n, ast.Attribute) and n.attr in _ABOUT}
        for n in ast.walk(top):
            if isinstance(n, ast.Compare) and all(isinstance(op, (ast.Is, ast.IsNot)) for op in n.ops):
                about |= {id(n.left), *map(id, n.comparators)}
            elif called_name(n) in _ABOUT_CALLS:
                about |= {id(argument) for argument in given_to(n)}
        found |= {
            key
            for n in ast.walk(top)
            if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Load) and id(n) not in about
            if (key := key_of(n)) is not None
        }
    return found
