"""Two updates change places: the one that still needs the old weights goes first.

optimD.zero_grad()                        optimG.zero_grad()
lossD.backward()                          lossG.backward()
optimD.step()                             optimG.step()

optimG.zero_grad()                        optimD.zero_grad()
lossG.backward()                          lossD.backward()
optimG.step()                             optimD.step()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.dataflow import calls_named, is_step, key_of, simple
from ...source.editor import Edit
from ...source.lift import lift, start_with_comments
from ..analysis.backward_calls import retain_flags
from ..analysis.meetings import Meeting, backward_before, update_between, update_of
from ..problem import Problem
from ..proposal import Proposal
from ..registry import register


@register("modified", "silent")
def swap_updates(problem: Problem) -> Iterator[Proposal]:
    found = update_between(problem)
    write = problem.clash.write
    if found is None or write is None or write.origin != "optim" or not simple(found.first):
        return
    code, block = found.code, found.block
    late = update_of(block, found.need)
    target = earliest_update(found)
    if target is None or retain_flags(target) or target in late or any(s in late for s in update_of(block, target)):
        return
    front = update_of(block, target)[0]
    # What makes the later loss after the first update has to come along.
    makers = [s for s in found.loss if block.index(s) >= block.index(front) and s not in late]
    if not all(simple(s) for s in makers):
        return
    moved = lift(code, [*makers, *late])
    if moved is None or not code.begins_line(front):
        return
    at = start_with_comments(code, front)
    text = code.apply(Edit(at, at, moved.text), *moved.edits)
    if not code.cell.raw.endswith(code.newline):
        text = text.removesuffix(code.newline)
    what = " ".join(code.text(found.need).split())
    yield Proposal(
        title=message("title_update_first", what=what),
        why=message("why_updates_swapped"),
        form="swap_updates",
        texts={code.cell.number: text},
    )


def earliest_update(found: Meeting) -> ast.stmt | None:
    """The backward of the first update that comes after the needed loss was saved."""
    block = found.block
    after = block.index(found.save) + 1 if found.save is not None else 0
    saved_for_need = [s for s in found.loss if block.index(s) < block.index(found.first)]
    if saved_for_need:
        after = max(after, block.index(saved_for_need[-1]) + 1)
    helper = _helper(found.first)
    for statement in block[after : block.index(found.first) + 1]:
        if statement is found.first or is_step(statement) or (helper is not None and _helper(statement) == helper):
            return backward_before(block, statement)
    return None


def _helper(statement: ast.stmt) -> str | None:
    """The name of a function that is called for a whole update."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and not calls_named(statement, "step"):
        return key_of(statement.value.func)
    return None
