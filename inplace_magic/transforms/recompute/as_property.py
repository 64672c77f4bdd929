"""What a constructor computes once, and an object keeps, is a property: whoever reads it has it computed anew.

def __init__(self, n):                           def __init__(self, n):
    self.log_std = Parameter(zeros(n))               self.log_std = Parameter(zeros(n))
    self.noise = Normal(0, self.log_std.exp())
                                                 @property
                                                 def noise(self):
                                                     return Normal(0, self.log_std.exp())

What it is handed, and the object does not keep yet, it keeps from then on. Where one method, or the loop of a cell, alone reads
it, that computes it anew (stale_values.py).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.bindings import bound, parameters
from ...source.dataflow import is_called
from ...source.editor import CONSTRUCTORS, Code, Function, names_bound
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_graphs_of_their_own")


@register("second_backward", "modified")
def as_property(problem: Problem) -> Iterator[Proposal]:
    frames = {f.statement: f for edge in problem.crossing.over for f in problem.frames(edge.made)}
    for statement, frame in frames.items():
        code, constructor = frame.code, frame.code.function(statement)
        home = code.parent(constructor) if constructor is not None else None
        if not isinstance(constructor, ast.FunctionDef) or constructor.name not in CONSTRUCTORS:
            continue
        owner, given = parameters(constructor)[0], {*parameters(constructor)[1:]}
        (path, value), *others = [*bound(code, statement)] or [("", None)]
        attribute = path.removeprefix(f"{owner}.")
        if others or value is None or not attribute.isidentifier() or path == attribute:
            continue
        if not isinstance(home, ast.ClassDef) or not _is_set_once(problem, home, attribute):
            continue
        if not _is_read_widely(problem, attribute) or _stands_beside(problem, attribute, value):
            continue
        handed = [n for n in ast.walk(value) if isinstance(n, ast.Name) and n.id in given]
        local = {n.id for n in ast.walk(value) if isinstance(n, ast.Name)} & (names_bound(constructor.body) - given)
        names = [name for name in parameters(constructor) if any(n.id == name for n in handed)]
        if local or any(f"{owner}.{name}" in _kept(code, home) for name in names):
            continue
        text = code.edited(value, [code.replace(n, f"{owner}.{n.id}") for n in handed])
        lines = ["", "@property", f"def {attribute}({owner}):", f"{code.indent_step}return {text}"]
        edits = [code.delete(statement), code.insert_after(constructor, *lines)]
        if names:
            edits.append(code.insert_before(statement, *(f"{owner}.{name} = {name}" for name in names)))
        yield in_one_text(code, edits, message("title_property", name=attribute), _WHY, "recompute: as a property")


def _is_set_once(problem: Problem, home: ast.ClassDef, attribute: str) -> bool:
    """Whether what is so called is set in one place alone, and no method is called so."""
    own = [n.name for n in home.body if isinstance(n, Function)]
    stores = (
        n for _, n in problem.nodes(ast.Attribute) if isinstance(n.ctx, ast.Store | ast.Del) and n.attr == attribute
    )
    return attribute not in own and len([*stores]) == 1


def _is_read_widely(problem: Problem, attribute: str) -> bool:
    """Whether several functions read what is so called, or one that is no method."""
    named = ((c, n) for c, n in problem.nodes(ast.Attribute) if isinstance(n.ctx, ast.Load) and n.attr == attribute)
    reads = [(code, node) for code, node in named if not is_called(code, node)]  # no method of that name
    readers = {function: code for code, node in reads for function in [code.function(node)]}
    plain = (f for f, code in readers.items() if f is not None and not isinstance(code.parent(f), ast.ClassDef))
    return len(readers) > 1 or any(plain)


def _stands_beside(problem: Problem, attribute: str, value: ast.expr) -> bool:
    """Whether something compares it with the same, computed anew: ``(self.w.norm() - self.norm_at_first) ** 2``."""
    text = ast.unparse(value)
    joined = (n for _, n in problem.nodes(ast.BinOp) if {text} & {ast.unparse(one) for one in (n.left, n.right)})
    return any(attribute in (getattr(one, "attr", None) for one in (n.left, n.right)) for n in joined)


def _kept(code: Code, home: ast.ClassDef) -> set[str]:
    """The attributes that a class sets."""
    return {code.text(n) for n in ast.walk(home) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
