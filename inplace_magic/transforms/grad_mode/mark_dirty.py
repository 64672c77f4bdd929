"""A custom Function that writes into what it is given, and gives it back, tells autograd so.

a[box] += b                               a[box] += b
return a                                  ctx.mark_dirty(a)
                                          return a

Else the tensor that the caller holds keeps its old history: what has been written into it gets no gradient
(https://pytorch.org/docs/stable/autograd.html#torch.autograd.function.FunctionCtx.mark_dirty).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.bindings import parameters
from ...source.blocks import own_statements
from ...source.dataflow import calls_named, reads
from ...source.editor import Def
from ..analysis.targets import applies_function, sites
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_mark_dirty")


@register("silent")
def mark_dirty(problem: Problem) -> Iterator[Proposal]:
    frames = sites(problem, depth=2)
    if not any(applies_function(problem, frame) for frame in frames[1:]):
        return
    write = frames[0]
    if not isinstance(write.root, ast.Name):
        return
    code, name, forward = write.code, write.root.id, write.code.function(write.statement)
    if not isinstance(forward, Def) or name not in parameters(forward)[1:] or calls_named(forward, "mark_dirty"):
        return
    said = f"{parameters(forward)[0]}.mark_dirty({name})"
    given_back = [s for s in own_statements(code, forward) if isinstance(s, ast.Return) and name in reads(s)]
    if given_back:
        edits = [code.insert_before(one, said) for one in given_back]
        yield in_one_text(code, edits, said, _WHY, "mark_dirty", meant=True)
