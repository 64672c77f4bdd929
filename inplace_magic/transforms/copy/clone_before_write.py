"""What is written is copied first, so that what was saved keeps its value.

scores = score(q, v)              scores = score(q, v)
                                  v = v.clone()
v[:, 0, 1] = 0                    v[:, 0, 1] = 0

y = Halve.apply(x)                y = Halve.apply(x.clone())

normalise_(x)                     x = x.clone()
                                  normalise_(x)

out[0].mul_(2)                    out = (out[0].clone(), *out[1:])
                                  out[0].mul_(2)

left, right = x[:n], x[n:]        x = x.clone()
left.mul_(2)                      left, right = x[:n], x[n:]
return x                          left.mul_(2)
                                  return x

for piece in pieces(x):           x = x.clone()
    piece.zero_()                 for piece in pieces(x):
return x                              piece.zero_()
                                  return x
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from ...message import message
from ...source.bindings import bindings, bound, later, loop_of, reads
from ...source.blocks import AnyLoop, loops, upwards
from ...source.dataflow import given_to, rebinds
from ..analysis.contents import index_of, with_item
from ..analysis.meant import are_apart, is_lost, meant_for_whole, updates_by_another_look
from ..analysis.meetings import sent_back_again, uses_gradients
from ..analysis.targets import (
    Site,
    applies_function,
    handed_down,
    loop_to_keep,
    root_text,
    seen_through,
    tensor_written,
    written_here,
)
from ..grad_mode.inference_mode import modes
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_copy_is_written")
_LEAF_WHY = message("why_new_leaf")


@register("modified", "leaf", "view_of_leaf", "multi_output_view", "no_grad_view", "inference", "overlap", "silent")
def clone_before_write(problem: Problem) -> Iterator[Proposal]:
    write = written_here(problem)
    if write is None or write.sets_data or updates_by_another_look(problem, write) or sent_back_again(problem):
        return
    yield from _at_apply(problem, write)
    yield from _at_write(problem, write)
    yield from _at_views(problem, write)
    yield from _at_call(problem)
    yield from _at_pieces(problem)


def _at_apply(problem: Problem, write: Site) -> Iterator[Proposal]:
    """``Halve.apply(x)``, or ``halve(x)`` for ``halve = Halve.apply``, where the Function writes into its argument."""
    code, call = write.code, write.expression
    if isinstance(call, ast.Call) and applies_function(problem, write):
        for given in call.args[:2]:
            if isinstance(given, (ast.Name, ast.Attribute, ast.Subscript)):
                edit = code.behind(given, ".clone()")
                yield in_one_text(code, [edit], call, _WHY, "clone_before_write: of a Function")


def _at_write(problem: Problem, write: Site) -> Iterator[Proposal]:
    """``x = x.clone()`` in front of the statement that writes into ``x``, or of the loop that it stands in."""
    code, found = write.code, tensor_written(write)
    unseen = problem.family == "silent" and any(any(modes(s, "no_grad")) for s in upwards(code, write.statement))
    if found is None or unseen:  # a copy made there would have no graph at all
        return
    name, item = code.text(found), isinstance(found, ast.Subscript)
    if isinstance(found, ast.Name) and (is_lost(problem, write, name) or loop_to_keep(write, name) is not None):
        return
    more = meant_for_whole(write) and not item
    apart = not item and are_apart(problem, write)
    by_module = isinstance(write.node, ast.Call) and write.event.origin == "nn"
    form = "clone_before_write: " + ("meant for more" if more else "module" if by_module else "write")
    why = message("why_names_apart") if apart else _WHY
    before = _loop_after_save(problem, write, found)
    lines = [f"{name} = {name}.clone()"]
    if isinstance(found, ast.Subscript) and index_of(found) is not None:  # of a tuple, which takes none
        lines += [f"{code.text(found.value)} = {with_item(code, found, f'{name}.clone()')}"]
    for line, place in itertools.product(lines, dict.fromkeys([before, write.statement])):
        yield in_one_text(code, [code.insert_before(place, line)], line, why, form, lossless=more, meant=apart)
    if problem.family in ("leaf", "view_of_leaf") and not item:  # which is to require grad again further on
        line = f"{name} = {name}.detach().clone()"
        yield in_one_text(code, [code.insert_before(before, line)], line, _LEAF_WHY, "clone_before_write: new leaf")


def _at_views(problem: Problem, write: Site) -> Iterator[Proposal]:
    """``x = x.clone()`` in front of what gives other names to parts of ``x``, where one of them is written and ``x`` read on."""
    code, name = write.code, write.root_text
    whole = seen_through(code, str(name), write.statement) if meant_for_whole(write) else None
    for binding in bindings(code, str(name), write.statement)[:1] if whole is not None else ():
        before = itertools.takewhile(lambda s: whole not in rebinds(s), reversed(code.preceding(binding.statement)))
        views = [s for s in before if any(root_text(code, value) == whole for _, value in bound(code, s))]
        edit = code.insert_before([binding.statement, *views][-1], line := f"{whole} = {whole}.clone()")
        lossless = problem.family not in ("leaf", "view_of_leaf")  # as written the leaf itself would have other values
        yield in_one_text(code, [edit], line, _WHY, "clone_before_write: of the whole", lossless=lossless)


def _at_call(problem: Problem) -> Iterator[Proposal]:
    """``x = x.clone()`` in front of the call of a function that writes into ``x``, which is read under that name afterwards.

    Of items that a loop hands over one by one, ``f(parts[i])``, all are copied ahead of the loop.
    """
    for caller, name in itertools.islice(handed_down(problem), 1, None):
        code, statement = caller.code, caller.statement
        read = reads(code, name, later(code, statement)) if name.isidentifier() else []
        if not read or loop_of(code, statement, name):
            continue
        copies = [(statement, f"{name} = {name}.clone()"), *_copies_of_items(caller, name)]
        for place, line in copies:
            yield in_one_text(code, [code.insert_before(place, line)], line, _WHY, "clone_before_write: of a caller")


def _at_pieces(problem: Problem) -> Iterator[Proposal]:
    """``x = x.clone()`` ahead of a loop through what a call gives of ``x``, whose items are written, where ``x`` is read on."""
    for caller, name in handed_down(problem):
        code, loop = caller.code, loop_of(caller.code, caller.statement, name)
        if loop is None:
            continue
        for given in given_to(loop.iter):
            whole = code.text(given)
            if isinstance(given, ast.Name) and reads(code, whole, later(code, loop)):
                edit = code.insert_before(loop, line := f"{whole} = {whole}.clone()")
                yield in_one_text(code, [edit], line, _WHY, "clone_before_write: of the whole")


def _copies_of_items(caller: Site, name: str) -> Iterator[tuple[ast.stmt, str]]:
    """``parts = [t.clone() for t in parts]`` ahead of the loops that hand over one item after the other."""
    given = [node.value for node in given_to(caller.expression) if isinstance(node, ast.Subscript)]
    if any(ast.unparse(one) == name for one in given):
        around = itertools.takewhile(lambda loop: name not in rebinds(loop), loops(caller.code, caller.statement))
        item = "t" if name != "t" else "part"
        for loop in [*around][-1:]:
            yield loop, f"{name} = [{item}.clone() for {item} in {name}]"


def _loop_after_save(problem: Problem, write: Site, found: ast.expr) -> ast.stmt:
    """The outermost loop around the write that begins after the tensor was saved, binds nothing of what names it and, where
    nothing was saved, does not train; else the write.
    """
    code, names = write.code, {write.code.text(found), *(n.id for n in ast.walk(found) if isinstance(n, ast.Name))}

    def begins_late(loop: AnyLoop) -> bool:
        return not names & rebinds(loop) and (bool(problem.saved) or not uses_gradients([loop]))

    around = loops(code, write.statement, without=[frame.statement for frame in problem.saved])
    return [write.statement, *itertools.takewhile(begins_late, around)][-1]
