"""What the graph that is left after a failed backward tells, where the cell is not run again.

The engine stops at the first value that is no longer what was saved; that node and all below it are still as they were.
Asking each node for what it saved finds it, and every other one like it. Nothing is changed, no hook of the person's is
called, and what comes out holds no live object.
"""

from __future__ import annotations

import ast
import re
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..message import message
from ..record.operations import HARMLESS
from ..session.names import graph_holders
from ..session.user_objects import walk
from ..source.location import SourceRange, kind_of
from ..source.names import stores
from ..source.own import is_a
from ..source.sources import Sources
from ..storage import storage_key
from ..torch_private import roots_of, saved_values, sequence_number, version_of

MAX_NODES = 20_000
"""Nodes looked at: about a third of a second's worth."""

SYMBOLS = {
    ast.Add: "+=", ast.Sub: "-=", ast.Mult: "*=", ast.Div: "/=", ast.FloorDiv: "//=", ast.Mod: "%=", ast.Pow: "**=",
    ast.MatMult: "@=", ast.BitAnd: "&=", ast.BitOr: "|=", ast.BitXor: "^=", ast.LShift: "<<=", ast.RShift: ">>=",
}  # fmt: skip
# Methods with a trailing underscore that leave the version as it is.
_VERSION_KEPT = HARMLESS | {"detach_"}
_VERSIONS = re.compile(r"is at version (\d+); expected version (\d+)")
_CHANGED = re.compile(r"modified by an inplace operation|detached in-place")


@dataclass(frozen=True)
class Stale:
    """A value that ``node`` saved at one version and that has another now.

    ``names`` are the person's names for that memory, in ``function`` if it is not the cell's own level. ``writes`` are
    the spots that changed it, if the text alone leaves no other possibility; else empty.
    """

    node: str
    version: int | None
    saved_version: int | None
    shape: tuple[int, ...]
    names: tuple[str, ...] = ()
    function: str | None = None
    writes: tuple[SourceRange, ...] = ()


@dataclass(frozen=True)
class LiveGraph:
    """``stale``: what has changed, the one that the engine met first at the top. ``entrances``: names below the root
    that already carry a graph, by which an earlier backward's graph can have come in. ``inference``: inference tensors.
    """

    stale: tuple[Stale, ...] = ()
    entrances: tuple[str, ...] = ()
    inference: tuple[str, ...] = ()
    nodes: int = 0


def look(error: BaseException, namespace: Mapping[str, Any], sources: Sources) -> LiveGraph:
    """Looks at the graph that a failed backward walked. Without a graph only names are told."""
    import torch

    from ..torch_private import out_of_sight

    with out_of_sight():
        frames = list(_frames(error))
        nodes = _nodes(_roots(error))
        scopes = [*_scopes(frames), (None, None, None, lambda: walk(namespace))]
        stale = tuple(_named(found, value, scopes, sources) for found, value in _stale(nodes))
        roots = {id(node) for node in nodes[:1]}
        inside = {id(node) for node in nodes} - roots
        entrances = tuple(path for path, node in graph_holders(namespace) if id(node) in inside)
        inference = tuple(path for path, value in walk(namespace) if is_a(value, torch.Tensor) and value.is_inference())
        return LiveGraph(stale, entrances, inference, len(nodes))


# ---- the graph ------------------------------------------------------------------------------------------------------


def _frames(error: BaseException) -> Iterator[tuple[types.FrameType, int]]:
    tb = error.__traceback__
    while tb is not None:
        yield tb.tb_frame, tb.tb_lasti
        tb = tb.tb_next


def _roots(error: BaseException) -> tuple[Any, ...]:
    """What the failed backward was called on, by the innermost call that the traceback holds."""
    found = [roots for frame, _ in _frames(error) if (roots := roots_of(frame)) is not None]
    return found[-1] if found else ()


def _nodes(roots: tuple[Any, ...]) -> list[Any]:
    """Every node below the roots, in the order in which the engine comes to them."""
    todo = [getattr(root, "grad_fn", None) or getattr(root, "node", None) for root in roots]
    seen: dict[Any, None] = {}
    while todo and len(seen) < MAX_NODES:
        node = todo.pop()
        if node is not None and node not in seen:
            seen[node] = None
            todo.extend(below for below, _ in node.next_functions)
    first = {root for root in (getattr(r, "grad_fn", None) for r in roots) if root is not None}
    return sorted(seen, key=lambda node: (node in first, sequence_number(node)), reverse=True)


def _stale(nodes: list[Any]) -> Iterator[tuple[Stale, Any]]:
    for node in nodes:
        for raw, unpack in saved_values(node):
            if getattr(raw, "unpack_hook", None) is not None:
                continue  # unpacking would run code of the person's
            try:
                unpack()
            except RuntimeError as refused:
                if not _CHANGED.search(str(refused)):
                    continue  # freed, by this backward or an earlier one
                versions = _VERSIONS.search(str(refused))
                now, then = (int(v) for v in versions.groups()) if versions else (None, None)
                value = raw.data
                yield Stale(node.name(), now, then, tuple(getattr(value, "shape", ()))), value


# ---- names, and the lines that can be told from the text --------------------------------------------------------------

_Scope = tuple["str | None", "types.CodeType | None", "int | None", Callable[[], Iterator[tuple[str, Any]]]]


def _scopes(frames: list[tuple[types.FrameType, int]]) -> Iterator[_Scope]:
    """The person's functions that the error went through, innermost first, with the way to their local names."""
    for frame, lasti in reversed(frames):
        code = frame.f_code
        if kind_of(code.co_filename) == "user" and frame.f_locals is not frame.f_globals:
            yield code.co_name, code, lasti, lambda frame=frame: walk(frame.f_locals)  # type: ignore[misc]


def _named(found: Stale, value: Any, scopes: list[_Scope], sources: Sources) -> Stale:
    key = storage_key(value) if value is not None else None
    if key is None:
        return found
    for function, code, lasti, names in scopes:
        same = [(path, tensor) for path, tensor in names() if storage_key_of(tensor) == key]
        counted = tuple(
            path for path, tensor in same if not tensor.is_inference() and version_of(tensor) == found.version
        )
        if same:
            writes = _writes(found, counted, code, lasti, sources)
            return replace(found, names=tuple(path for path, _ in same), function=function, writes=writes)
    return found


def storage_key_of(value: Any) -> Any:
    import torch

    return storage_key(value) if is_a(value, torch.Tensor) else None


def _writes(
    found: Stale, names: tuple[str, ...], code: types.CodeType | None, lasti: int | None, sources: Sources
) -> tuple[SourceRange, ...]:
    """The lines that wrote, if the text leaves no doubt.

    A version counts every write since the tensor was made. When as many statements as that write to it by one of its
    names, each of them one that has certainly run and has run once, then there is no other write, and those beyond the
    version that was saved are the ones that changed it.
    """
    if found.version is None or found.saved_version is None:
        return ()
    block = _block(code, lasti, sources)
    if block is None:
        return ()
    statements, number, filename, function = block
    spots: list[SourceRange] = []
    for name in names:
        mine: list[ast.stmt] = []
        for statement in statements:
            if _binds(statement, name):
                mine = []
            elif (written := _writes_to(statement)) == name:
                if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Subscript):
                    return ()  # one write, or two where the part is a view
                mine.append(statement)
            elif written is None and _mentions_write(statement, name):
                return ()  # in a loop or a branch: who knows how often
        spots += [SourceRange(number, filename, function, s.lineno, s.end_lineno) for s in mine]
    spots.sort(key=lambda spot: spot.line)
    return tuple(spots[found.saved_version :]) if len(spots) == found.version else ()


def _block(
    code: types.CodeType | None, lasti: int | None, sources: Sources
) -> tuple[list[ast.stmt], int | None, str, str] | None:
    """The statements that have certainly run, once and in this order: of the failing cell, or of a function."""
    if code is None:
        number, function, filename, last = sources.current, "<module>", "", None
    else:
        spot = sources.spot(code, lasti or 0)
        number, function, filename, last = spot.cell, spot.function, spot.filename, spot.line
    cell = sources.cells.get(number) if number is not None else None
    if cell is None or cell.tree is None:
        return None
    body = cell.tree.body
    if code is not None:
        inner = [
            node
            for node in ast.walk(cell.tree)
            if isinstance(node, ast.FunctionDef) and node.name == code.co_name
            if last is not None and node.lineno <= last <= (node.end_lineno or 0)
        ]
        if len(inner) != 1 or any(isinstance(node, (ast.Global, ast.Nonlocal)) for node in ast.walk(inner[0])):
            return None
        body = inner[0].body
    return list(_flat(body)), number, filename, function


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements, those within ``with`` blocks as well."""
    for statement in body:
        if isinstance(statement, ast.With):
            yield from _flat(statement.body)
        else:
            yield statement


def _binds(statement: ast.stmt, name: str) -> bool:
    """Whether a plain assignment gives the name a new value."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return any(stores(target, name) for target in targets)


def _writes_to(statement: ast.stmt) -> str | None:
    """The name that a simple statement writes to in place: ``x += 1``, ``x[0] = 1``, ``x.mul_(2)``."""
    target: ast.AST | None = None
    if isinstance(statement, ast.AugAssign):
        target = statement.target
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0] if isinstance(statement.targets[0], ast.Subscript) else None
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        called = statement.value.func
        if isinstance(called, ast.Attribute) and _is_write(called.attr):
            target = called.value
    while isinstance(target, ast.Subscript):
        target = target.value
    return target.id if isinstance(target, ast.Name) else None


def _mentions_write(statement: ast.stmt, name: str) -> bool:
    """Whether a statement that is not simple has a write to the name, or a binding of it, somewhere within."""
    return any(
        isinstance(node, ast.stmt) and node is not statement and (_writes_to(node) == name or _binds(node, name))
        for node in ast.walk(statement)
    )


def _is_write(method: str) -> bool:
    return method.endswith("_") and not method.endswith("__") and method not in _VERSION_KEPT


def written_by(spot: SourceRange | None, sources: Sources) -> tuple[str, str] | None:
    """(the way of writing, the tensor) as the text of a refused line has it: ("`+=`", "w"); None if it is not plain."""
    code = sources.code(spot.cell) if spot is not None else None
    if spot is None or code is None:
        return None
    statement = code.statement_at(spot.line, spot.column)
    if isinstance(statement, ast.AugAssign):
        return f"`{SYMBOLS[type(statement.op)]}`", ast.unparse(statement.target)
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        if isinstance(target, ast.Subscript):
            return message("what_part_assigned"), ast.unparse(target.value)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        called = statement.value.func
        if isinstance(called, ast.Attribute) and _is_write(called.attr):
            return f"`{called.attr}()`", ast.unparse(called.value)
    return None
