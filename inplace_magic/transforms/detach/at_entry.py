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
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...record.evidence import Edge
from ...source.bindings import bound
from ...source.blocks import own_statements, scope
from ...source.dataflow import simple
from ...source.editor import Code
from ...source.names import own_names
from ..analysis.points import bound_by, detached
from ..problem import Problem
from ..proposal import Proposal
from .at_boundary import boundary
from .candidates import CARRIED, candidates, in_one_line


def at_entry(problem: Problem, edges: Sequence[Edge]) -> Iterator[Proposal]:
    """One cut of all that is carried on, in the function that all of it is carried on by."""
    for frame in problem.frames(edges[0].used) if edges else ():
        code, function = frame.code, scope(frame.code, frame.statement)
        own = [*own_statements(code, function)]
        declared = [s for s in own if isinstance(s, ast.Nonlocal)]
        resumed = [s for s in own if simple(s) and any(isinstance(node, ast.Yield) for node in ast.walk(s))]
        names = {name for s in declared for name in s.names} | (own_names(function) if resumed else frozenset())
        holders = [edge.holders or bound_by(problem, edge, frame) for edge in edges]
        held = [h for some in holders for h in some if h.scope == frame.spot.function and h.path in names]
        cuts = {h.path: detached(h.path, h.shape) for h in held}
        if None in cuts.values() or not all(any(h in held for h in some) for some in holders):
            continue
        line = in_one_line(cuts)
        asked = "" if resumed else " and ".join(f"{path} is not None" for path in cuts if _may_be_none(code, path))
        lines = [f"if {asked}:", f"{code.indent_step}{line}"] if asked else [line]
        changes = [(code, code.insert_after(one, *lines)) for one in resumed or declared[-1:]]
        for one in candidates(problem, changes, boundary([(h.path, h.shape) for h in held]), CARRIED):
            yield replace(one, title=line)


def _may_be_none(code: Code, name: str) -> bool:
    """Whether a text gives the name nothing somewhere."""
    given = (pair for n in ast.walk(code.tree) if isinstance(n, ast.stmt) for pair in bound(code, n))
    return any(path == name and isinstance(value, ast.Constant) and value.value is None for path, value in given)
