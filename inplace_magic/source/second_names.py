"""What a write in place is called in the text, and by which names what it has changed is read behind it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from .bindings import bound, later, loop_of, parameters
from .blocks import loops, own_statements, scope
from .dataflow import called_name, calls_named, given_to, is_inplace_name, key_of, reads, rebinds, receiver
from .editor import Code, Function

# Writes that set some elements right, for all who read them: ``logits.masked_fill_(~legal, -inf)``.
_SETTING = frozenset({
    "masked_fill_", "masked_scatter_", "index_fill_", "fill_", "zero_", "copy_", "nan_to_num_",
    "clamp_", "clamp_min_", "clamp_max_", "clip_", "__setitem__",
})  # fmt: skip


@dataclass(frozen=True)
class Written:
    """A place in the text at which something is written, or handed to what writes it.

    ``names``: what may be written there. ``results``: what the statement binds to the result. ``rebound``: names that it gives
    another value, or the same once more. ``later``: what is read behind it, or in the statement itself; ``returned`` of that is
    given to the caller. ``matters``: the text leaves it open that the written tensor has another name, or is read on; else the
    names of a function are not asked for, as that keeps them alive.
    """

    code: Code
    node: ast.AST
    names: frozenset[str]
    results: frozenset[str]
    rebound: frozenset[str]
    later: frozenset[str]
    returned: frozenset[str]

    @property
    def has_result(self) -> bool:
        """Whether what is written has another way on than its name: ``e += y`` has none."""
        return isinstance(self.node, ast.Call)

    @cached_property
    def matters(self) -> bool:
        top = scope(self.code, self.node)
        pairs = [pair for s in own_statements(self.code, top) for pair in bound(self.code, s)]
        named = {one for key, value in pairs if isinstance(value, ast.Name) for one in (key, value.id)}
        beside = (self.later - self.rebound) if self.has_result else frozenset[str]()
        return isinstance(top, ast.Module) or any(n in named | beside or self.collected_in(n) for n in self.names)

    def collected_in(self, name: str) -> set[str]:
        """Lists to which a loop appends a tensor that it goes on writing: ``state *= 2``, ``states.append(state)``."""
        around = loops(self.code, self.code.statement(self.node))
        calls = [call for loop in around for call in calls_named(loop, "append") if name not in rebinds(*loop.body)]
        appended = [call.func.value for call in calls if [key_of(one) for one in call.args] == [name]]  # type: ignore[attr-defined]
        return {one.id for one in appended if isinstance(one, ast.Name)}

    def items_of(self, name: str) -> str | None:
        """The list whose items a loop around it calls ``name``."""
        loop = loop_of(self.code, self.node, name)
        return loop.iter.id if loop is not None and isinstance(loop.iter, ast.Name) else None

    def gives_back(self, name: str) -> bool:
        """Whether the function around it is handed what it calls ``name``, and gives it back, or what the call at this place gives."""
        function = self.code.function(self.node)
        if not isinstance(function, Function) or name not in parameters(function) or is_inplace_name(function.name):
            return False  # ``def scale_(x)`` says what it does
        returned = [one.value for one in own_statements(self.code, function) if isinstance(one, ast.Return)]
        return any(value is self.node or _itself(value) == name for value in returned)

    def read_by(self, node: ast.AST) -> tuple[set[str], bool]:
        """The names that an operation is given, or a call of the user's, and whether it is given the result of the write."""
        given = list(_operands(node))
        result = any(one is self.node for one in given) or any(one is node for one in ast.walk(self.node))
        return {one.id for one in given if isinstance(one, ast.Name)}, result


def written_at(code: Code, node: ast.AST) -> Written:
    statement = code.statement(node)
    names = frozenset(one.id for one in _written(node) if isinstance(one, ast.Name))
    rebound = frozenset(rebinds(statement))
    results = rebound if getattr(statement, "value", None) is node else frozenset[str]()
    behind = [statement, *later(code, statement)]
    values = [n.value for top in behind for n in ast.walk(top) if isinstance(n, ast.Return) and n.value is not None]
    return Written(code, node, names, results - {"_"}, rebound, frozenset(reads(*behind)), frozenset(reads(*values)))


def is_transformation(operation: str) -> bool:
    """Whether a write gives the tensor a value of another meaning: an activation, a sum, a scale; not some elements set right."""
    return operation not in _SETTING


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
        return [one for one in [receiver(node), *node.args] if one is not None]
    return given_to(node)  # ``F.relu(x, inplace=True)``, ``self.relu(x)``, ``normalized(x)``


def _operands(node: ast.AST) -> Iterator[ast.expr]:
    """What an expression computes with, those in a list or a comprehension among them."""
    match node:
        case ast.Expr(value) | ast.Return(value) | ast.Assign(value=value) if value is not None:
            yield from _operands(value)
        case ast.BinOp(left, right=right):
            yield from _each(left, right)
        case ast.UnaryOp(operand=one) | ast.Subscript(value=one) | ast.Attribute(value=one):
            yield from _each(one)
        case ast.AugAssign(target, value=value):
            yield from _each(target, value)
        case ast.Call(ast.Attribute(value=one)) if called_name(node).endswith("_as"):
            yield from _each(one)  # the other one gives a shape
        case ast.Call(func):
            yield from _each(*given_to(node), *([func.value] if isinstance(func, ast.Attribute) else []))
        case _:
            yield from _each(*(one.iter for one in getattr(node, "generators", ())))


def _each(*values: ast.expr) -> Iterator[ast.expr]:
    for value in values:
        match value:
            case ast.List(elts) | ast.Tuple(elts) | ast.Set(elts):
                yield from _each(*elts)
            case ast.Dict(values=items):
                yield from _each(*items)
            case ast.Starred(one):
                yield from _each(one)
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp() | ast.DictComp():
                yield from _operands(value)
            case _:
                yield value


def _itself(value: ast.expr | None) -> str | None:
    """The name of the tensor that an expression gives: ``x`` for ``x``, and for ``x.relu_()``."""
    while isinstance(value, ast.Call) and is_inplace_name(called_name(value)):
        value = receiver(value)
    return value.id if isinstance(value, ast.Name) else None
