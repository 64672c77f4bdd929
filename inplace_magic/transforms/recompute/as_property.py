"""What a constructor computed of an object's own values, and other code reads, is computed wherever it is read.

def __init__(self):                       def __init__(self):
    self.log = nn.Parameter(start)            self.log = nn.Parameter(start)
    self.alpha = self.log.exp()
                                          @property
                                          def alpha(self):
                                              return self.log.exp()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.editor import Function
from ...source.names import own_names
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register
from .slices import slices

_WHY = message("why_each_call")


@register("second_backward", "modified")
def as_property(problem: Problem) -> Iterator[Proposal]:
    made = [(one.code, one.statements[0]) for one in slices(problem, problem.crossing) if len(one.statements) == 1]
    for code, statement in dict.fromkeys(made):
        constructor = code.function(statement)
        match statement:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=value):
                pass
            case _:
                continue
        if not isinstance(constructor, Function) or constructor.name != "__init__" or not code.alone(statement):
            continue
        local = {n.id for n in ast.walk(value) if isinstance(n, ast.Name)} & own_names(constructor)
        if local != {"self"} or not _is_read_apart(problem, name, constructor):
            continue
        lines = ["", "@property", f"def {name}(self):", f"{code.indent_step}return {code.text(value)}"]
        edits = [code.delete(statement), code.insert_after(constructor, *lines)]
        yield in_one_text(code, edits, f"@property def {name}(self)", _WHY, "recompute: property")


def _is_read_apart(problem: Problem, name: str, constructor: ast.AST) -> bool:
    """Whether others than one method read the attribute of its object, and nothing else sets it, nor reads it ahead."""
    nodes = [(code, n) for code, n in problem.nodes(ast.Attribute) if n.attr == name]
    stored = [n for _, n in nodes if not isinstance(n.ctx, ast.Load)]
    readers = {code.function(n): n for code, n in nodes if isinstance(n.ctx, ast.Load)}
    outside = any(ast.unparse(n.value) != "self" for n in readers.values())
    return len(stored) == 1 and constructor not in readers and (outside or len(readers) > 1)
