"""A part of a tensor is written: the tensor is copied first, so that what was saved keeps its value.

scores = score(q, v)              scores = score(q, v)
                                  v = v.clone()
v[:, 0, 1] = 0                    v[:, 0, 1] = 0

y = Halve.apply(x)                y = Halve.apply(x.clone())
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...families import is_of_base
from ...message import message
from ...source.bindings import bindings, loop_of, scope
from ...source.editor import Loop, atom, dotted
from ..analysis.targets import Site, by_this_line, meant_for_whole, used_later, written
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_copy_is_written")


@register("modified", "leaf", "view_of_leaf", "multi_output_view", "no_grad_view", "inference", "overlap", "silent")
def clone_before_write(problem: Problem) -> Iterator[Proposal]:
    write, event = written(problem), problem.clash.write
    if write is None or event is None or is_of_base(problem.clash.message) or not by_this_line(event, write):
        return
    yield from _at_apply(write)
    yield from _at_write(problem, write)


def _at_apply(write: Site) -> Iterator[Proposal]:
    """``Halve.apply(x)``, where the Function writes into its argument."""
    code = write.code
    call = write.node.value if isinstance(write.node, (ast.Expr, ast.Assign, ast.Return)) else write.node
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != "apply":
        return
    for given in call.args[:2]:
        if dotted(given) is not None or isinstance(given, ast.Subscript):
            copy = f"{atom(code, given)}.clone()"
            edits, title = [code.replace(given, copy)], f"{code.text(call.func)}({copy})"
            yield in_one_text(code, edits, title, _WHY, "clone_before_write: of a Function", local=True)


def _at_write(problem: Problem, write: Site) -> Iterator[Proposal]:
    """``x = x.clone()`` in front of the statement that writes into ``x``, or of the loop that it stands in."""
    code, found = write.code, write.root
    name = dotted(found) if found is not None else None
    if name is None or write.target is None:
        return
    head = name.split(".")[0]
    if loop_of(code, write.statement, head) and isinstance(found, ast.Name) and not used_later(write, name):
        return
    more = meant_for_whole(write)
    module = isinstance(write.node, ast.Call) and problem.clash.write is not None and problem.clash.write.origin == "nn"
    form = "clone_before_write: " + ("meant for more" if more else "module" if module else "write")
    outer = _loop_after_save(problem, write, name)
    line = f"{name} = {name}.clone()"
    for place in [outer, write.statement] if outer is not None else [write.statement]:
        yield in_one_text(code, [code.insert_before(place, line)], line, _WHY, form, local=True, lossless=more)


def _loop_after_save(problem: Problem, write: Site, name: str) -> ast.stmt | None:
    """The outermost loop around the write that begins after the tensor was saved and does not bind it anew."""
    here = (write.spot.cell, write.spot.function)
    save = next((s for s in problem.save_stack if (s.cell, s.function) == here), None)
    found: ast.stmt | None = None
    for above in write.code.parents(write.statement) if save is not None else ():
        if above is scope(write.code, write.statement):
            break
        if isinstance(above, Loop):
            lines = range(above.lineno, (above.end_lineno or above.lineno) + 1)
            bound = any(b.statement.lineno in lines for b in bindings(write.code, name, write.statement))
            of_loop = loop_of(write.code, write.statement, name.split(".")[0]) is above
            if bound or of_loop or (save is not None and save.line in lines):
                break
            found = above
    return found
