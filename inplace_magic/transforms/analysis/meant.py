"""What a write was meant to reach: one name of a tensor or all of them, the view alone or the whole.

out = x                 `x` and `out` are both read on: each was meant to have a value of its own
out += f(x)
rows = x[:3]            `x` is read on: the write was meant to reach it
rows *= 2
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ...source.bindings import bindings, bound, bound_anew, gone_through, later, loop_of, parameters, reads
from ...source.blocks import loops, own_statements, scope
from ...source.dataflow import called_name, rebinds
from ...source.editor import Code, Function
from ...source.names import declared
from ..problem import Problem
from .targets import Site, is_of_leaf, root, root_text, seen_through, written_by

_PUTS = ("append", "add", "appendleft")


def has_two_names(write: Site) -> bool:
    """Whether ``out = x`` or ``y = torch.sin_(x)`` gave the written tensor a second name, and both are read once it is written.

    Then each was meant to have a value of its own: who knows the two to be one tensor needs one name for it. So it is in a
    function that was handed ``x`` and gives something back: with ``x += y``, ``x.add_(y)``, ``return x.add_(y)``, and with what it writes
    into ``out = x`` and returns.
    And so it is where a loop keeps what it goes on writing: ``path.append(x)``.
    """
    name, code, top = write.root_text, write.code, scope(write.code, write.statement)
    if isinstance(write.root, ast.Name) and _kept_by_loop(write, write.root.id):
        return True
    own = isinstance(top, Function) and not top.name.endswith("_")
    if isinstance(write.statement, ast.Return) and write.target is write.root and name in parameters(top):
        return own and root_text(code, write.statement.value) == name
    if not isinstance(write.root, ast.Name) or not _reads_value(code, str(name), later(code, write.statement)):
        return False
    pairs = [
        (key, same)
        for s in own_statements(code, top)
        for key, value in bound(code, s)
        if (same := _named_by(value)) is not None
    ]
    others = {other for pair in pairs if name in pair for other in pair} - {name}
    given = [s.value for s in own_statements(code, top) if isinstance(s, ast.Return) and s.value is not None]
    summed = (
        isinstance(write.statement, (ast.AugAssign, ast.Expr))
        and write.target is write.root
        and name in parameters(top)
    )
    filled = bool(others & {*parameters(top)} and reads(code, str(name), [*given]))
    if given and (summed or filled) and own:
        return True
    return any(_reads_before_bound(code, other, later(code, write.statement)) for other in others)


def _named_by(value: ast.expr | None) -> str | None:
    """The name of the very tensor that an expression gives: ``x``, or ``x`` for ``torch.sin_(x)``."""
    into = written_by(value) if isinstance(value, ast.Call) else [value]
    return into[0].id if into and isinstance(into[0], ast.Name) else None


def _sets_item(code: Code, statement: ast.Assign) -> bool:
    """``path[k] = x``, where the path is a list or a dict: a tensor takes the values alone."""
    target = statement.targets[0]
    base = code.text(target.value) if isinstance(target, ast.Subscript) else None
    made = [b.value for b in bindings(code, base, statement)] if base is not None else []
    return any(isinstance(v, (ast.List, ast.Dict)) or called_name(v) in ("list", "dict", "defaultdict") for v in made)


def _kept_by_loop(write: Site, name: str) -> bool:
    """Whether a loop around the write, which gives the name no other tensor, puts what it names into a container each time."""
    for loop in loops(write.code, write.statement):
        nodes = [node for node in ast.walk(loop) if isinstance(node, ast.stmt)]
        calls = [n.value for n in nodes if isinstance(n, ast.Expr) and isinstance(n.value, ast.Call)]
        put = [given for call in calls if called_name(call) in _PUTS for given in call.args]
        put += [n.value for n in nodes if isinstance(n, ast.Assign) and _sets_item(write.code, n)]
        anew = any(name in rebinds(n) for n in nodes) or loop_of(write.code, write.statement, name) is not None
        if not anew and any(isinstance(one, ast.Name) and one.id == name for one in put):
            return True
    return False


def _reads_value(code: Code, name: str, nodes: list[ast.AST]) -> bool:
    """Whether a name is read for more than to write into what it names."""
    into = {id(root(target)) for top in nodes for node in ast.walk(top) for target in written_by(node)}
    return any(id(read) not in into for read in reads(code, name, nodes))


def reads_itself(problem: Problem, write: Site) -> bool:
    """Whether a write also reads, by another name, the values of the memory that it writes: nobody has that done on purpose."""
    held = problem.clash.write.held if problem.clash.write is not None else ()
    first = {name.partition(".")[0].partition("[")[0] for name in held} - {(write.root_text or "").partition(".")[0]}
    read = [node for name in first for node in reads(write.code, name, [write.statement])]
    return any(not is_of_leaf(write.code, node) for node in read)


def goes_on_with(frames: Sequence[Site]) -> bool:
    """Whether what an in-place call gives is a value that the code around goes on with: ``pixels = grid.mul_(255).round()``.

    ``frames``: those of the write, innermost first; what a function gives back is read by its caller's code.
    """
    write, name = frames[0], frames[0].root_text
    statement = write.statement
    if name is None or not isinstance(write.node, ast.Call):
        return False
    if isinstance(statement, ast.Return):
        callers = [caller for caller in frames[1:2] if not isinstance(caller.statement, ast.Expr)]
        return bool(callers) or any(caller.statement.value is not caller.node for caller in frames[1:2])  # type: ignore[attr-defined]
    if isinstance(statement, ast.Assign):
        return all(root_text(write.code, target) != name for target in statement.targets)
    return isinstance(statement, ast.Expr) and root_text(write.code, statement.value) != name


def meant_for_whole(write: Site) -> bool:
    """Whether the write was meant to reach more than its name: the whole of a view, or what the caller handed over."""
    name, code = write.root_text, write.code
    if name is None or not isinstance(write.root, ast.Name) or has_two_names(write):
        return False
    loop = loop_of(code, write.statement, name)
    items = root(gone_through(loop, name)) if loop is not None else None
    if loop is not None and items is not None and reads(code, code.text(items), later(code, loop)):
        return True
    whole = seen_through(code, name, write.statement)
    if whole is not None:
        behind = later(code, write.statement)
        if loop_of(code, write.statement, whole) or bound_anew(code, write.statement, whole):  # in this iteration alone
            return any(read.lineno > write.statement.lineno for read in reads(code, whole, behind))
        return _reads_before_bound(code, whole, behind)
    function = code.function(write.statement)
    return name in parameters(function) and function is not None and not _gives_value(function)


def is_lost(write: Site, name: str) -> bool:
    """Whether a function would give its own name another value that nobody reads: ``def hook(g): g = g * 2``."""
    code, function = write.code, write.code.function(write.statement)
    own = function is not None and name not in declared(function)
    alone = own and isinstance(write.statement, (ast.AugAssign, ast.Expr))
    looped = loop_of(code, write.statement, name) is not None  # then it is an item of what is gone through
    return alone and not looped and not reads(code, name, later(code, write.statement))


def _gives_value(function: ast.AST) -> bool:
    return any(isinstance(n, ast.Return) and n.value is not None for n in ast.walk(function))


def _reads_before_bound(code: Code, text: str, nodes: list[ast.AST]) -> bool:
    """Whether a name is read while it still has its value of now."""
    for node in nodes:
        if reads(code, text, [node]):
            return True
        if isinstance(node, ast.stmt) and text in rebinds(node):
            return False
    return False
