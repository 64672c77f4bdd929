"""A buffer that a function fills and gives out is given out as a copy, so that the next call leaves it alone.

def pack(t):                      def pack(t):
    stage.copy_(t)                    stage.copy_(t)
    return stage                      return stage.clone()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.bindings import own_statements
from ...source.editor import Function, atom
from ..analysis.targets import root, sites
from ..problem import Problem
from ..proposal import Proposal
from ..registry import register

_WHY = message("why_copy_is_given_out")


@register("silent")
def clone_returned(problem: Problem) -> Iterator[Proposal]:
    for write in sites(problem, depth=2):
        code, name = write.code, write.root_text
        function = code.function(write.statement)
        if name is None or not isinstance(function, Function):
            continue
        for statement in own_statements(code, function):
            if not isinstance(statement, ast.Return) or statement.value is None:
                continue
            held = root(statement.value)
            if held is None or code.text(held) != name:
                continue
            new = f"return {atom(code, statement.value)}.clone()"
            yield Proposal(new, _WHY, "clone_returned", {code.cell.number: code.apply(code.replace(statement, new))})
