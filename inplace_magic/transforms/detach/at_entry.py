"""What a closure keeps from call to call is cut off as the call begins, what a generator keeps as it is resumed: nobody
else has a name for it.

def step(tokens):                         def step(tokens):
    nonlocal h, c                             nonlocal h, c
                                              h, c = h.detach(), c.detach()
    for x in tokens:                          for x in tokens:
        h, c = cell(x, (h, c))                    h, c = cell(x, (h, c))

        yield loss(h)                             yield loss(h)
                                                  h = h.detach()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace

from ...record.evidence import Edge
from ...source.bindings import bound
from ...source.blocks import loops, own_statements, scope
from ...source.dataflow import binds, live_in, simple
from ...source.editor import Code
from ...source.names import own_names
from ..analysis.points import bound_by, detached
from ..problem import Frame, Problem
from ..proposal import Proposal
from .candidates import CARRIED, boundary, candidates, in_one_line

_SHAPES = "Tensor", "tuple[Tensor]"  # of a cell's state


def at_entry(problem: Problem, edges: Sequence[Edge]) -> Iterator[Proposal]:
    """One cut of all that is carried on, in the function that all of it is carried on by."""
    for frame in problem.frames(edges[0].used) if edges else ():
        code, own = frame.code, [*own_statements(frame.code, scope(frame.code, frame.statement))]
        declared = [s for s in own if isinstance(s, ast.Nonlocal)]
        resumed = [s for s in own if simple(s) and any(isinstance(node, ast.Yield) for node in ast.walk(s))]
        names = _carried_by_generator(frame) if resumed else {name for s in declared for name in s.names}
        seen = [[h for h in edge.holders if h.scope == frame.spot.function and h.path in names] for edge in edges]
        ways = [[(h.path, h.shape) for some in seen for h in some]] if all(seen) else []
        if resumed and not all(seen):  # nobody can see into a generator that only a loop holds
            bound_to = [[h.path for h in bound_by(problem, edge, frame) if h.path in names] for edge in edges]
            ways = [[(path, shape) for some in bound_to for path in some] for shape in _SHAPES] if all(bound_to) else []
        for held in ways:
            cuts = {path: detached(path, shape) for path, shape in held}
            if None in cuts.values():
                continue
            line = in_one_line(cuts)
            asked = "" if resumed else " and ".join(f"{path} is not None" for path in cuts if _may_be_none(code, path))
            lines = [f"if {asked}:", f"{code.indent_step}{line}"] if asked else [line]
            changes = [(code, code.insert_after(one, *lines)) for one in resumed or declared[-1:]]
            for one in candidates(problem, changes, boundary(held), CARRIED):
                yield replace(one, title=line)


def _carried_by_generator(frame: Frame) -> Set[str]:
    """The names whose values an iteration of the innermost loop has from the one before."""
    around = loops(frame.code, frame.statement)[:1]
    carried = {name for loop in around for name in live_in(loop.body) & binds(*loop.body)}
    return carried & own_names(scope(frame.code, frame.statement))


def _may_be_none(code: Code, name: str) -> bool:
    """Whether a text gives the name nothing somewhere."""
    given = (pair for n in ast.walk(code.tree) if isinstance(n, ast.stmt) for pair in bound(code, n))
    return any(path == name and isinstance(value, ast.Constant) and value.value is None for path, value in given)
