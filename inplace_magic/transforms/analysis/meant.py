"""What a write was meant to reach: one name of a tensor or all of them, the view alone or the whole.

out = x                 `x` and `out` are both read on: each was meant to have a value of its own
out += f(x)
rows = x[:3]            `x` is read on: the write was meant to reach it
rows *= 2
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TypeGuard

from ...families import is_of_base
from ...source.bindings import (
    bound,
    bound_anew,
    gone_through,
    is_dead_store,
    later,
    loop_of,
    parameters,
    reads,
    value_of,
)
from ...source.blocks import loops, own_statements, scope
from ...source.dataflow import called_name, graph_reads, is_inplace_name, rebinds
from ...source.editor import Code, Function, dotted
from ...source.names import first_name
from ..problem import Problem
from .contents import container, put, put_into, shares
from .meetings import is_in_update, updates_weights
from .targets import Site, is_of_leaf, is_whole, puts_constant, root, root_text, seen_through, sites, written_by

_ARITHMETIC = frozenset({"add_", "sub_", "subtract_", "mul_", "multiply_", "div_", "divide_", "true_divide_", "pow_"})


def are_apart(problem: Problem, write: Site) -> bool:
    """Whether each of the written tensor's names was meant to have a value of its own: none of a leaf that is updated, nor where
    what is read behind a write into its base is refused.
    """
    if is_of_base(problem.clash.message):
        return False
    apart = _has_two_names(write, dropped=_is_dropped(problem)) or _keeps_what_it_is_handed(write)
    return apart and not _updates_leaf(problem, write)


def _keeps_what_it_is_handed(write: Site) -> bool:
    """Whether a method keeps data that it is handed, and then writes it: ``self.pos = pos``, ``self.pos[:, 2].clamp_(min=0)``."""
    code, name = write.code, write.root_text
    given = {
        code.text(value) for key, value in _bound_before(write) if value is not None and key == name and "." in key
    }
    return _is_of_data(write) and bool(given & {*parameters(scope(code, write.statement))})


def _bound_before(write: Site) -> Iterator[tuple[str, ast.expr | None]]:
    """What the function binds ahead of the write, each with its value."""
    code, own = write.code, own_statements(write.code, scope(write.code, write.statement))
    return (pair for s in own if s.lineno < write.statement.lineno for pair in bound(code, s))


def _is_of_data(write: Site) -> bool:
    """Whether what is written is a leaf whose gradient is asked for, and that is no parameter."""
    return write.event.of_leaf and not write.event.parameter


def _is_dropped(problem: Problem) -> bool:
    """Whether the function that writes is called for what it does alone: ``normalise(batch)``."""
    callers = sites(problem, depth=2)[1:]
    return any(isinstance(one.statement, ast.Expr) and one.statement.value is one.expression for one in callers)


def _updates_leaf(problem: Problem, write: Site) -> bool:
    return write.event.of_leaf and is_in_update(problem)


def _has_two_names(write: Site, dropped: bool = False) -> bool:
    """Whether ``out = x`` or ``y = torch.sin_(x)`` gave the written tensor a second name, and both are read once it is written.

    Then each was meant to have a value of its own: who knows the two to be one tensor needs one name for it. So it is in a
    function that was handed ``x`` and gives something back: with ``x += y``, ``x.add_(y)``, ``return x.add_(y)``, with parts
    that it computes of themselves (``x[i] = x[i] / s``), with a constant that it sets in a leaf which is no parameter, with
    what it writes into ``out = x`` and returns, and with a constant that it sets for what it computes: ``x[i] = 0``,
    ``return x.sum()``. And so it is where a loop keeps what it
    goes on writing: ``path.append(x)``. ``dropped``: nobody has what the function gives back.
    """
    if not isinstance(write.root, ast.Name):
        return False
    name, code, top = write.root.id, write.code, scope(write.code, write.statement)
    if _kept_by_loop(write, name):
        return True
    gives_back = isinstance(top, Function) and not is_inplace_name(top.name) and not dropped
    masked = _is_of_data(write) and puts_constant(write)
    as_handed = name in parameters(top) and (write.target is write.root or _of_itself(write, name) or masked)
    if isinstance(write.statement, ast.Return) and as_handed:
        return gives_back and root_text(code, write.statement.value) == name
    behind = later(code, write.statement)
    if not _reads_value(code, name, behind):
        return False
    own = list(own_statements(code, top))
    pairs = [{key, _named_by(write, value)} for s in own for key, value in bound(code, s)]
    others = {other for pair in pairs if name in pair for other in pair if other is not None} - {name}
    returned: list[ast.AST] = [s for s in own if isinstance(s, ast.Return) and s.value is not None]
    summed = as_handed and (write.target is not write.root or isinstance(write.statement, (ast.AugAssign, ast.Expr)))
    filled = others & {*parameters(top)} and reads(code, name, returned)
    computed = [s for s in returned if isinstance(s, ast.Return) and root_text(code, s.value) != name]
    for_own = name in parameters(top) and puts_constant(write) and reads(code, name, [*computed])
    if gives_back and returned and (summed or filled or for_own):
        return not _is_looked_through(write, name)
    return any(_reads_before_bound(code, other, behind) for other in others)


def _is_looked_through(write: Site, name: str) -> bool:
    """Whether a view of a tensor that was made before a write is read behind it, and so is to see what is written:
    ``v = state[:, 3]``.
    """
    code, before = write.code, _bound_before(write)
    looks = {
        key for key, value in before if key != name and root(value) is not value and root_text(code, value) == name
    }
    behind = later(code, write.statement)
    return any(_reads_value_of_now(write, key, behind) for key in looks)


def _reads_value_of_now(write: Site, name: str, behind: list[ast.AST]) -> bool:
    """Whether a name is read behind the write while it still has its value of then, in this iteration if it gets one in each."""
    code, statement = write.code, write.statement
    if loop_of(code, statement, name) or bound_anew(code, statement, name):
        return any(read.lineno > statement.lineno for read in reads(code, name, behind))
    return _reads_before_bound(code, name, behind)


def _of_itself(write: Site, name: str) -> bool:
    """Whether a part of a tensor gets other values that are computed of its own, or chosen by them: ``x[i] = (x[i] - mean) / std``,
    ``x[i] /= s``, ``x[i].sub_(mean)``, ``x[x < 0] = 0``.
    """
    match write.statement:
        case ast.Assign([ast.Subscript(slice=chosen) as target], value):
            masks = [] if write.event.of_leaf else [n for n in ast.walk(chosen) if isinstance(n, ast.Compare)]
            return target is write.target and bool(graph_reads(write.code, [value, *masks], {name}))
        case ast.AugAssign(ast.Subscript() as target):
            return target is write.target
        case ast.Expr(ast.Call() as call):
            return isinstance(write.target, ast.Subscript) and called_name(call) in _ARITHMETIC
    return False


def _named_by(write: Site, value: ast.expr | None) -> str | None:
    """The name of the very tensor that an expression gives: ``x``, ``x`` for ``torch.sin_(x)``; of what is an item of a list,
    the list's.
    """
    into = written_by(value) if isinstance(value, ast.Call) else [value]
    named = into[0] if into else None
    if is_item(named, write):
        return dotted(named.value)
    return named.id if isinstance(named, ast.Name) else None


def is_item(value: ast.expr | None, write: Site) -> TypeGuard[ast.Subscript]:
    """Whether the written tensor is what a number gives of a list or a tuple, ``feats[0]``, and no view of a tensor.

    What a key gives of a dict is its state, which is meant to be written.
    """
    if not isinstance(value, ast.Subscript) or type(getattr(value.slice, "value", None)) is not int:
        return False
    return ast.unparse(value) in write.event.held


def _kept_by_loop(write: Site, name: str) -> bool:
    """Whether a loop around the write, which gives the name no other tensor, puts what it names into a container each time."""
    for loop in loops(write.code, write.statement):
        statements = [node for node in ast.walk(loop) if isinstance(node, ast.stmt)]
        kept = any(isinstance(value, ast.Name) and value.id == name for s in statements for _, value in put(s))
        if kept and not any(name in rebinds(s) for s in statements):
            return True
    return False


def _reads_value(code: Code, name: str, nodes: list[ast.AST]) -> bool:
    """Whether a name is read for more than to write into what it names."""
    into = {id(root(target)) for top in nodes for node in ast.walk(top) for target in written_by(node)}
    return any(id(read) not in into for read in reads(code, name, nodes))


def reads_itself(write: Site) -> bool:
    """Whether a write also reads, by another name, the values of the memory that it writes: nobody has that done on purpose."""
    names = {first_name(path) for path in write.event.held} - {(write.root_text or "").partition(".")[0]}
    read = [node for name in names for node in reads(write.code, name, [write.statement])]
    return any(not is_of_leaf(write.code, node) for node in read)


def updates_by_another_look(problem: Problem, write: Site) -> bool:
    """Whether weights are updated through what holds another look at their memory: ``flat[n].sub_(g)`` for ``p.detach()``.

    Made out of place, or on a copy, such an update would no longer reach them.
    """
    if problem.family == "multi_output_view" and _updates_leaf(problem, write):
        return True
    name = container(write)
    if name is None or not updates_weights(problem) or reads_itself(write):
        return False
    return any(shares(value) for _, value in put_into(problem, write, name))


def goes_on_with(frames: Sequence[Site]) -> bool:
    """Whether what an in-place call gives is a value that the code around goes on with: ``pixels = grid.mul_(255).round()``.

    ``frames``: those of the write, innermost first; what a function gives back is read by its caller's code.
    """
    write, name = frames[0], frames[0].root_text
    match write.statement if isinstance(write.node, ast.Call) else None:
        case ast.Return():
            return any(
                not isinstance(one.statement, ast.Expr) or one.statement.value is not one.node for one in frames[1:2]
            )
        case ast.Assign(targets):
            return all(root_text(write.code, target) != name for target in targets)
        case ast.Expr(value):
            return root_text(write.code, value) != name
    return False


def meant_for_whole(write: Site) -> bool:
    """Whether the write was meant to reach more than its name: the whole of a view, a view of the whole, or what the caller
    handed over. Not what stands for two gradients.
    """
    if not isinstance(write.root, ast.Name) or _has_two_names(write) or write.event.how == "shared":
        return False
    name, code = write.root.id, write.code
    loop = loop_of(code, write.statement, name)
    items = root(gone_through(loop, name))
    if loop is not None and items is not None and reads(code, code.text(items), later(code, loop)):
        return True
    whole = seen_through(code, name, write.statement)
    if whole is not None:
        return not _takes_next(write, name, whole) and _reads_value_of_now(write, whole, later(code, write.statement))
    if _is_looked_through(write, name):
        return True
    function = scope(code, write.statement)
    return name in parameters(function) and not any(isinstance(n, ast.Return) and n.value for n in ast.walk(function))


def _takes_next(write: Site, name: str, whole: str) -> bool:
    """Whether a loop takes one item after the other out of a list, ``h = states[k]``, and nothing else reads the list on."""
    taken, behind = value_of(write.code, name, write.statement), later(write.code, write.statement)
    several = any(path.startswith(f"{whole}[") for path in write.event.held)
    own = {*ast.walk(taken)} if taken is not None and bound_anew(write.code, write.statement, name) else set()
    return several and bool(own) and all(read in own for read in reads(write.code, whole, behind))


def is_lost(problem: Problem, write: Site, name: str) -> bool:
    """Whether a function would give its own name another value that nobody reads, ``def hook(g): g = g * 2``, or its argument's
    name one that is not the leaf which it is to update.
    """
    code, function = write.code, write.code.function(write.statement)
    if name in parameters(function) and _updates_leaf(problem, write):
        return True
    looped = loop_of(code, write.statement, name) is not None  # then it is an item of what is gone through
    return is_whole(write) and not looped and is_dead_store(code, name, write.statement)


def _reads_before_bound(code: Code, text: str, nodes: list[ast.AST]) -> bool:
    """Whether a name is read while it still has its value of now."""
    for node in nodes:
        if reads(code, text, [node]):
            return True
        if isinstance(node, ast.stmt) and text in rebinds(node):
            return False
    return False
