"""A loop whose iterations update begins with the one that needs the old weights.

for name in ("D", "G"):                   for name in ("G", "D"):
    update(nets[name], losses[name])          update(nets[name], losses[name])

for net, loss in losses.items():          for net, loss in reversed(losses.items()):
    update(net, loss)                         update(net, loss)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.blocks import loops
from ...source.dataflow import called_name
from ...source.editor import Code, Edit, names_loaded
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register
from .split_loop import ends

_WHY = message("why_updates_after")
_ITERATORS = ("zip", "enumerate", "map", "filter")


@register("modified")
def reverse_loop(problem: Problem) -> Iterator[Proposal]:
    """The loop around an update and the backward that comes in one of its later iterations."""
    write = problem.clash.write
    if write is None or write.origin != "optim":
        return
    first = {loop for frame in problem.frames(problem.write_stack) for loop in loops(frame.code, frame.statement)}
    made = {loop for frame in problem.frames(problem.save_stack) for loop in loops(frame.code, frame.statement)}
    for frame in problem.frames(problem.need_stack):
        turned = [loop for loop in loops(frame.code, frame.statement) if loop in first - made]
        for loop in (one for one in turned if isinstance(one, ast.For)):
            if called_name(loop.iter) in _ITERATORS and not ends(loop):
                continue
            if {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)} & names_loaded(loop.body):
                edits = list(_reversed(frame.code, loop.iter))
                through = ast.unparse(ast.parse(f"({frame.code.edited(loop.iter, edits)})", mode="eval"))
                title = f"for {frame.code.text(loop.target)} in {through}:"
                yield in_one_text(frame.code, edits, title, _WHY, "reverse_loop")


def _reversed(code: Code, through: ast.expr) -> Iterator[Edit]:
    """What a loop goes through, from its end: of a tuple or list the items, each in another's place."""
    if isinstance(through, (ast.Tuple, ast.List)):
        for item, other in zip(through.elts, through.elts[::-1]):
            yield code.replace(item, code.text(other))
        return
    text = code.text(through)
    yield code.replace(
        through, f"reversed(list({text}))" if called_name(through) in _ITERATORS else f"reversed({text})"
    )
