"""A part of a tensor is written: the tensor is copied first, so that what was saved keeps its value.

scores = score(q, v)              scores = score(q, v)
                                  v = v.clone()
v[:, 0, 1] = 0                    v[:, 0, 1] = 0

out = x                           out = x.clone()
out += y                          out += y

clear_(state)                     state = state.clone()
                                  clear_(state)
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from ...families import is_of_base
from ...message import message
from ...record.evidence import Write
from ...source.editor import Code, Edit, Loop, atom, dotted
from ..analysis.targets import (
    VIEW_METHODS,
    Site,
    argument,
    bindings,
    loop_of,
    meant_for_whole,
    parameters,
    reads,
    scope,
    sites,
)
from ..problem import Problem
from ..proposal import Proposal
from ..registry import register

_WHY = message("why_copy_is_written")


@register(
    "modified", "leaf", "view_of_leaf", "multi_output_view", "no_grad_view", "inference", "overlap", "silent"
)  # fmt: skip
def clone_before_write(problem: Problem) -> Iterator[Proposal]:
    if problem.clash.write is None or problem.clash.write.origin == "optim" or is_of_base(problem.clash.message):
        return
    frames = sites(problem)
    if not frames:
        return
    if problem.clash.write.origin == "nn" and not _written_at_once(problem.clash.write, frames[0]):
        return
    yield from _at_apply(frames[0])
    yield from _at_alias(problem, frames[0])
    yield from _at_write(problem, frames[0])
    yield from _at_call(frames)


def _written_at_once(write: Write, frame: Site) -> bool:
    """Whether the module that wrote is the one that the line calls, and not one somewhere inside of it."""
    call = frame.node.value if isinstance(frame.node, (ast.Expr, ast.Assign, ast.Return)) else frame.node
    if not isinstance(call, ast.Call) or write.module is None:
        return True
    called = frame.code.text(call.func).rpartition(".")[2]
    return write.module.rpartition(".")[2] in (called, f"{called}[0]") or not isinstance(call.func, ast.Attribute)


def _at_apply(write: Site) -> Iterator[Proposal]:
    """``Halve.apply(x)``, where the Function writes into its argument."""
    call = write.node.value if isinstance(write.node, (ast.Expr, ast.Assign, ast.Return)) else write.node
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != "apply":
        return
    for given in call.args[:2]:
        if dotted(given) is not None or isinstance(given, ast.Subscript):
            yield Proposal(
                title=f"{write.code.text(call.func)}({write.code.text(given)}.clone())",
                why=_WHY,
                form="clone_before_write: of a Function",
                texts={write.code.cell.number: write.code.apply(_appended(write.code, given))},
                local=True,
            )


def _at_alias(problem: Problem, write: Site) -> Iterator[Proposal]:
    """``out = x`` where ``out`` is written later."""
    code, name = write.code, write.root_text
    if name is None:
        return
    for binding in bindings(code, name, write.statement)[:1]:
        value = binding.value
        if value is None or not _alias(value):
            continue
        plain = dotted(value) is not None
        drops = not plain and meant_for_whole(write)
        whole = not isinstance(write.target, ast.Subscript) and write.target is write.root
        form = "name, refused" if plain and problem.family != "modified" else "name" if plain or whole else "view"
        form = "view, meant for more" if drops else form
        yield Proposal(
            title=f"{name} = {atom(code, value)}.clone()",
            why=message("why_name_copied", name=name),
            form=f"clone_before_write: {form}",
            texts={code.cell.number: code.apply(_appended(code, value))},
            lossless=drops,
            local=True,
        )


def _alias(value: ast.expr) -> bool:
    """Whether a value is another tensor, or a view of one, under a new name."""
    if dotted(value) is not None or isinstance(value, ast.Subscript):
        return True
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in VIEW_METHODS - {"numpy", "unbind", "chunk", "split", "values"}
    )


def _appended(code: Code, value: ast.expr) -> Edit:
    return code.replace(value, f"{atom(code, value)}.clone()")


def _at_write(problem: Problem, write: Site) -> Iterator[Proposal]:
    """``x = x.clone()`` in front of the statement that writes into ``x``, or of the loop that it stands in."""
    code, found = write.code, write.root
    name = dotted(found) if found is not None else None
    if name is None or write.target is None:
        return
    call = isinstance(write.node, ast.Call) and problem.clash.write is not None and problem.clash.write.origin == "nn"
    head = name.split(".")[0]
    if loop_of(code, write.statement, head) and isinstance(found, ast.Name) and not _used_later(write, name):
        return
    line = f"{name} = {name}.clone()"
    statement: ast.stmt = write.statement
    outer = _loop_after_save(problem, write, name)
    places = [outer, statement] if outer is not None else [statement]
    for place in places:
        yield Proposal(
            title=line,
            why=_WHY,
            form="clone_before_write: "
            + ("meant for more" if meant_for_whole(write) else "module" if call else "write"),
            texts={code.cell.number: code.apply(code.insert_before(place, line))},
            local=True,
            lossless=meant_for_whole(write),
        )


def _used_later(write: Site, name: str) -> bool:
    if not isinstance(write.statement, (ast.AugAssign, ast.Expr)) and not isinstance(write.target, ast.Subscript):
        return True
    block = write.code.block(write.statement)
    return bool(reads(write.code, name, list(block[block.index(write.statement) + 1 :])))


def _loop_after_save(problem: Problem, write: Site, name: str) -> ast.stmt | None:
    """The outermost loop around the write that begins after the tensor was saved and does not bind it anew."""
    save = next(
        (s for s in problem.save_stack if s.cell == write.spot.cell and s.function == write.spot.function), None
    )
    found: ast.stmt | None = None
    for above in write.code.parents(write.statement):
        if above is scope(write.code, write.statement):
            break
        if isinstance(above, Loop):
            within = save is not None and above.lineno <= save.line <= (above.end_lineno or above.lineno)
            bound = any(
                above.lineno <= b.statement.lineno <= (above.end_lineno or above.lineno)
                for b in bindings(write.code, name, write.statement)
            )
            if save is None or within or bound or loop_of(write.code, write.statement, name.split(".")[0]) is above:
                break
            found = above
    return found


def _at_call(frames: list[Site]) -> Iterator[Proposal]:
    """A function writes into its argument: the caller hands it a copy."""
    name = frames[0].root_text
    for inner, outer in itertools.pairwise(frames):
        function = inner.code.function(inner.statement)
        call = outer.node.value if isinstance(outer.node, ast.Expr) else outer.node
        if name is None or name not in parameters(function) or not isinstance(call, ast.Call):
            return
        given = argument(function, name, call)
        if given is None:
            return
        code = outer.code
        held = dotted(given)
        if held is not None and isinstance(outer.statement, ast.Expr):
            edit, title = code.insert_before(outer.statement, f"{held} = {held}.clone()"), f"{held} = {held}.clone()"
        else:
            edit, title = _appended(code, given), f"{code.text(call.func)}({atom(code, given)}.clone())"
        yield Proposal(
            title=title,
            why=_WHY,
            form="clone_before_write: caller",
            texts={code.cell.number: code.apply(edit)},
            local=True,
        )
        name = held
