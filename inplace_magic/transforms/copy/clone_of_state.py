"""What is taken from a tensor that an object keeps, and is then written, is taken as a copy: the graph does not stay there.

pose = self.poses[i]                      pose = self.poses[i].clone()
pose[:, 3] += self.shift[i]               pose[:, 3] += self.shift[i]
return render(pose)                       return render(pose)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.bindings import Binding, bindings
from ...source.blocks import own_statements, scope
from ...source.dataflow import binds, handed_on, reads
from ...source.editor import Code
from ..analysis.targets import root, root_text, written_by
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_copy_is_written")


@register("second_backward")
def clone_of_state(problem: Problem) -> Iterator[Proposal]:
    for edge in problem.crossing.over:
        for frame in problem.frames(edge.used):
            yield from _taken(frame.code, frame.statement)


def _taken(code: Code, statement: ast.stmt) -> Iterator[Proposal]:
    """What a statement reads of what an object keeps, or takes from it, under a name that the function writes into."""
    made = [Binding(statement, value) for _, value in handed_on(statement)]
    made += [one for name in sorted(reads(statement)) for one in bindings(code, name, statement)[:1]]
    nodes = (node for one in own_statements(code, scope(code, statement)) for node in ast.walk(one))
    written = {root_text(code, target) for node in nodes for target in written_by(node)}
    for taken in made:
        names = {name for name in binds(taken.statement) if name.isidentifier()}
        if taken.value is not None and isinstance(root(taken.value), ast.Attribute) and names & written:
            edit = code.behind(taken.value, ".clone()")
            yield in_one_text(code, [edit], taken.statement, _WHY, "clone_before_write: of a state")
