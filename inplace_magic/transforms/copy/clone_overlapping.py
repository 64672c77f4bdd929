"""Memory that several elements of a tensor share, or that a write also reads, is copied before it is written.

rows = bias.expand(4, 3)          rows = bias.expand(4, 3).clone()
x[1:] = x[:-1]                    x[1:] = x[:-1].clone()
live[live] = fooled               live[live.clone()] = fooled
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence, Set

from ...message import message
from ...source.bindings import loop_of
from ...source.dataflow import assigned, called_name, calls, calls_named, given_to
from ...source.editor import Code
from ..analysis.contents import OWN_MEMORY
from ..analysis.targets import Site, root_text, seen_through, written_here
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register
from .clone_alias import WHY, copied

_READ = message("why_copy_is_read")
_SPREADS = frozenset({"expand", "expand_as", "broadcast_to", "broadcast_tensors", "as_strided", "unfold"})
_LINKS = 3  # names that one thing is handed on under


@register("overlap")
def clone_overlapping(problem: Problem) -> Iterator[Proposal]:
    event, write = problem.clash.write, written_here(problem)
    path = re.sub(r"\[.*?\]", "", (event and event.name) or "")
    names: set[str | None] = {path, f"self.{path.rpartition('.')[2]}"}
    if write is not None:
        yield from _shifted(write)
        loop = loop_of(write.code, write.statement, write.root_text or "")
        names |= {write.root_text, *(_read(write.code, loop.iter) if loop is not None else ())}
    yield from _where_spread(problem, names - {None})


def _read(code: Code, node: ast.AST) -> set[str]:
    return {code.text(n) for n in ast.walk(node) if isinstance(n, (ast.Name, ast.Attribute))}


def _where_spread(problem: Problem, names: Set[str | None]) -> Iterator[Proposal]:
    """What gave one of the names memory that several elements share, or gave it to what the name was made from: an
    expression, or what a function of the user's returns."""
    for _ in range(_LINKS):
        made = [
            (code, value)
            for code, node in problem.nodes(ast.AST)
            for kept, value in _kept(code, node)
            if kept is None or kept in names
        ]
        called = {called_name(call) for _, value in made for call in calls(value)}
        made += [(code, n.value) for code, n in problem.nodes(ast.Return) if n.value and _name_of(code, n) in called]
        for code in dict.fromkeys(code for code, _ in made):
            below = [n for one, value in made if one is code for n in calls_named(value, *_SPREADS)]
            spread = [n for n in below if getattr(code.parent(n), "attr", "") not in OWN_MEMORY]
            if spread:
                edits = [copied(code, one) for one in spread]
                yield in_one_text(code, edits, edits[0].text, WHY, "clone_alias")
        names = {name for code, value in made for name in _read(code, value)} - names


def _kept(code: Code, node: ast.AST) -> Iterator[tuple[str | None, ast.expr]]:
    """Under what name a node keeps what; None where that is not written out: ``self.register_buffer(name, x.expand(3, 4))``."""
    if isinstance(node, ast.Assign):
        yield from ((root_text(code, target), node.value) for target in assigned(node))
    elif isinstance(node, ast.Call) and called_name(node) in ("register_buffer", "register_parameter", "setattr"):
        match node.args[1:] if called_name(node) == "setattr" else node.args:
            case [ast.Constant(str(name)), value, *_]:
                yield f"self.{name}", value
            case [_, value, *_]:
                yield None, value


def _name_of(code: Code, node: ast.AST) -> str | None:
    """The name of the function that a node stands in."""
    return getattr(code.function(node), "name", None)


def _shifted(write: Site) -> Iterator[Proposal]:
    """A tensor is written from another stretch of itself, or where it says itself."""
    code, statement = write.code, write.statement
    origin = _origin(code, write.root, statement)
    parts = [p for p in _operands(write) if origin is not None and _origin(code, p, statement) == origin]
    for chosen in [[part] for part in parts] + [parts] * (len(parts) > 1):
        yield in_one_text(code, [copied(code, part) for part in chosen], statement, _READ, "clone_alias")


def _operands(write: Site) -> Sequence[ast.expr]:
    """What a write reads as it is; anything computed has memory of its own."""
    ran, places = write.expression, getattr(write.target, "slice", None)
    value = getattr(write.statement, "value", None)
    read = given_to(ran) if isinstance(ran, ast.Call) else [value]
    return [one for one in (*getattr(places, "elts", [places]), *read) if one is not None]


def _origin(code: Code, node: ast.expr | None, statement: ast.stmt) -> str | None:
    """The name behind an expression that looks at memory: for `b`, after `b = x[1:]`, it is `x`."""
    name = root_text(code, node)
    for _ in range(_LINKS):
        name = name and (seen_through(code, name, statement) or name)
    return name
