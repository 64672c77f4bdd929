"""Where in the texts the trace's edges lie: the expression that used a value under the names that held it."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ...record.evidence import Edge, Holder
from ...source.bindings import bound_anew, gone_through, naming_loop, parameters, value_of
from ...source.dataflow import binds, called_name, is_called
from ...source.editor import Code, Function
from ...source.names import first_name, own_names
from ..problem import Frame, Problem

_DESCRIBES = frozenset({"shape", "size", "device", "dtype", "ndim", "dim", "grad", "requires_grad", "detach", "item"})


@dataclass(frozen=True)
class Use:
    """An expression that reads a held value where the graph goes on from it."""

    frame: Frame
    node: ast.expr
    holder: Holder


def uses(problem: Problem, edge: Edge) -> list[Use]:
    """Where the value is read under a name that held it, and still does, in the outermost frame that reads it so; or by a name
    that the function there has given to such a value, or has it as an argument by.
    """
    events = {(f.code, f.spot.function): f.statement for f in problem.lost}
    for frame in problem.frames(edge.used):
        since = events.get((frame.code, frame.spot.function))
        held = [h for h in edge.holders or bound_by(problem, edge, frame) if not (edge.over and _gone(frame, h, since))]
        for holder in sorted(held, key=lambda h: (h.shape != "Tensor", h.of_object)):
            found = [Use(frame, node, holder) for node in _loads(frame) if _is(frame, node, holder)]
            if not found and (holder.shape == "Tensor" or holder.shape.endswith("[Tensor]")):
                ways = _assigned(frame) if holder.shape == "Tensor" else _items(frame)
                found = [_by_name(frame, name) for name, value in ways if _is(frame, value, holder)]
            if found:
                return found
    return _argument_of_callback(problem, edge)


def _by_name(frame: Frame, name: ast.Name) -> Use:
    return Use(frame, name, Holder(frame.spot.function, name.id, "Tensor"))


def _assigned(frame: Frame) -> Iterator[tuple[ast.Name, ast.expr]]:
    """The names that a frame's node reads, each with what the nearest assignment gives it: ``previous = values[-1]``."""
    for node in _names(frame):
        value = value_of(frame.code, node.id, frame.statement)
        if value is not None:
            yield node, value


def _argument_of_callback(problem: Problem, edge: Edge) -> list[Use]:
    """The one argument that a function reads where it used the value, if its caller was handed the function by another name, or
    hands it over: ``accumulate(xs, step)``, ``closure()`` of ``closure = partial(step, x)``.
    """
    made = {frame.node for frame in problem.frames(edge.made)}
    for outer, inner in itertools.pairwise(problem.frames(edge.used)):
        function = inner.code.function(inner.node)
        given = made & {*ast.walk(outer.node)} - {outer.node}  # ``compute(net(x))``
        if isinstance(function, Function) and not given and _calls_by_another_name(outer, function.name):
            own = [one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
            read = [n for n in _names(inner) if n.id in own and n.id not in ("self", "cls")]
            if len({name.id for name in read}) == 1:
                return [_by_name(inner, name) for name in read]
    return []


def _calls_by_another_name(caller: Frame, function: str) -> bool:
    """Whether what a caller calls is another name than the function's, or hands the function on; not of an object that it calls."""
    if isinstance(caller.node, ast.Call) and called_name(caller.node) != function:
        return not function.startswith("__") and function != "forward"
    named = (n for n in ast.walk(caller.node) if isinstance(n, ast.Name) and n.id == function)
    return any(not is_called(caller.code, n) for n in named)


def _items(frame: Frame) -> Iterator[tuple[ast.Name, ast.expr]]:
    """The names by which a loop or a comprehension around a frame's node calls items, each with what it goes through."""
    for node in _names(frame):
        items = gone_through(naming_loop(frame.code, node, node.id), node.id)
        if items is not None:
            yield node, items


def _gone(frame: Frame, holder: Holder, since: ast.stmt | None) -> bool:
    """Whether the name holds another value by then."""
    return holder.scope == frame.spot.function and bound_anew(frame.code, frame.statement, holder.path, since)


def alike(use: Use) -> Iterator[Use]:
    """All reads of the value in the statement: one that no gradient came through this time has the same history."""
    text = ast.unparse(use.node)
    for node in _expressions(use.frame.statement):
        if ast.unparse(node) == text and _reads_value(use.frame.code, node):
            yield Use(use.frame, node, use.holder)


def bound_by(problem: Problem, edge: Edge, frame: Frame) -> tuple[Holder, ...]:
    """What the call that made a value bound in the same function, where nobody was seen to hold it (a generator does)."""
    made = [f for f in problem.frames(edge.made) if f.code is frame.code and f.spot.function == frame.spot.function]
    inside = {id(node) for node in ast.walk(frame.node)} - {id(frame.node)}  # an operand, which no name ever held
    names = {name for f in made if id(f.node) not in inside for name in binds(f.statement)}
    return tuple(Holder(frame.spot.function, name, "Tensor") for name in sorted(names))


def _loads(frame: Frame) -> list[ast.expr]:
    """The expressions by which what ran reads values; of an operation that reads none, those of its statement."""
    loads = ([n for n in _expressions(top) if _reads_value(frame.code, n)] for top in (frame.node, frame.statement))
    return next(filter(None, loads), [])


def _names(frame: Frame) -> list[ast.Name]:
    return [n for n in _loads(frame) if isinstance(n, ast.Name)]


def _expressions(top: ast.AST) -> Iterator[ast.expr]:
    """The readable expressions of a node; of a statement with a body only its head."""
    todo: list[ast.AST] = [top]
    while todo:
        node = todo.pop(0)
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Load):
            yield node
        todo += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt)]


def _reads_value(code: Code, node: ast.expr) -> bool:
    above = code.parent(node)
    while isinstance(above, ast.Subscript) and above.value is node:
        if isinstance(above.ctx, ast.Store):
            return False  # ``rows[i] = x`` writes into it
        node, above = above, code.parent(above)
    if isinstance(above, ast.Call) and above.func is node:
        return False  # it is a function
    if isinstance(above, ast.Compare) and any(isinstance(op, (ast.Is, ast.IsNot)) for op in above.ops):
        return False  # ``if state is None``
    return not (isinstance(above, ast.Attribute) and above.attr in _DESCRIBES)


def _is(frame: Frame, node: ast.expr, holder: Holder) -> bool:
    """Whether an expression of a frame reads what a holder held."""
    text = ast.unparse(node)
    if holder.of_object:
        base, _, rest = text.partition(".")
        of_self = base in parameters(frame.code.function(frame.node))[:1]
        return of_self and (rest == holder.path or rest.endswith(f".{holder.path}"))  # of an object that it has
    return (by_attribute(text) == by_attribute(holder.path) or _is_item(node, holder)) and _is_named(frame, holder)


def by_attribute(path: str) -> str:
    """``out.loss`` for ``out['loss']``: dicts of many libraries give their items both ways."""
    return re.sub(r"\[['\"](\w+)['\"]\]", r".\1", path)


def _is_named(frame: Frame, holder: Holder) -> bool:
    """Whether a holder's path means the same in a frame's function: its own name, or one from around it."""
    function, name = frame.code.function(frame.node), first_name(holder.path)
    return holder.scope == frame.spot.function or function is None or name not in own_names(function)


def _is_item(node: ast.expr, holder: Holder) -> bool:
    """``states[i]`` where ``states[0]`` held it."""
    held = ast.parse(holder.path, mode="eval").body
    if not isinstance(held, ast.Subscript) or not isinstance(node, ast.Subscript):
        return False
    alike = ast.unparse(node.value) == ast.unparse(held.value)
    return alike and not isinstance(node.slice, (ast.Constant, ast.Slice))


_DETACHED = {
    "list": "[{each} for {one} in {path}]",
    "dict": "{{key: {each} for key, {one} in {path}.items()}}",
    "mapping": "{path} | {{key: {each} for key, {one} in {path}.items()}}",  # an OrderedDict or a defaultdict stays one
    "tuple": "tuple({each} for {one} in {path})",
    "deque": "type({path})(({each} for {one} in {path}), {path}.maxlen)",
}


def detached(path: str, shape: str) -> str | None:
    """The expression that cuts a value of this shape off from its graph; None where none can be written."""
    if shape == "Tensor":
        return f"{path}.detach()"
    if shape.startswith("tuple("):
        paths = [(f"{path}[{at}]", part) for at, part in enumerate(_parts(shape))]
        parts = [one if part == "-" else detached(one, part) for one, part in paths]
        return f"({', '.join(map(str, parts))})" if None not in parts else None
    if "[" not in shape or shape.endswith("[mixed]"):
        return None
    outer, inner = shape[:-1].split("[", 1)
    one = next(name for name in (("h", "t") if inner == "Tensor" else ("state", "part")) if name != path)
    each = detached(one, inner)
    whole = _DETACHED.get(outer, "type({path})(*({each} for {one} in {path}))")
    return None if each is None else whole.format(path=path, each=each, one=one)


def _parts(shape: str) -> list[str]:
    """``Tensor`` and ``list[Tensor]`` of ``tuple(Tensor|list[Tensor])``."""
    parts, depth = [""], 0
    for sign in shape.removeprefix("tuple(")[:-1]:
        depth += (sign in "[(") - (sign in "])")
        if sign == "|" and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return parts
