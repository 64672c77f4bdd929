"""A forward that writes into a parameter, or a backward into what ctx keeps, works on a value under a name of its own.

self.weight.div_(self.weight.norm())      weight = self.weight.div(self.weight.norm())
return x @ self.weight.t()                return x @ weight.t()

self.table[0] = 0                         table = self.table.clone()
return F.embedding(ids, self.table)       table[0] = 0
                                          return F.embedding(ids, table)

The attribute itself could not be bound anew: a module keeps nothing but a Parameter under a parameter's name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.bindings import later, reads
from ...source.editor import Code, Function, Loop
from ...source.lift import unused
from ..analysis.targets import written
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register
from .new_tensor import as_new_tensor

_WHY = message("why_own_value")


@register("leaf", "view_of_leaf", "silent")
def own_name(problem: Problem) -> Iterator[Proposal]:
    write = written(problem)
    root = write and (write.root or (_bound_anew(write.statement) if problem.family == "silent" else None))
    if write is None or not isinstance(root, ast.Attribute):
        return
    code, statement, path = write.code, write.statement, write.code.text(root)
    function = code.function(statement)
    inside = [above for above in code.parents(statement) if isinstance(above, (Loop, *Function))]
    after = reads(code, path, later(code, statement))
    if any(_is_set(code, read) for read in after):
        return  # what is said of the parameter would be said of a value that nobody else has
    if not isinstance(function, Function) or inside[0] is not function or not after or not code.alone(statement):
        return
    name = unused(path.rpartition(".")[2], code)
    new = as_new_tensor(problem, code.text(statement)) if write.target is write.root else None
    if write.root is None:
        edits = [code.replace(root, name)]
        line = code.edited(statement, edits)
    elif write.target is not root:
        line = f"{name} = {path}.clone()"
        same = [n for n in ast.walk(statement) if isinstance(n, ast.Attribute) and code.text(n) == path]
        edits = [code.insert_before(statement, line), *(code.replace(n, name) for n in same)]
    elif new is not None and new.target is not None:
        line = f"{name} = {new.value}"
        edits = [code.replace(statement, line)]
    else:
        return
    edits += [code.replace(read, name) for read in after]
    yield in_one_text(code, edits, line, _WHY, "out_of_place: own name", local=True)


def _bound_anew(statement: ast.stmt) -> ast.expr | None:
    """What an assignment binds."""
    return statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None


def _is_set(code: Code, read: ast.expr) -> bool:
    """``self.weight.requires_grad = False``"""
    above = code.parent(read)
    return isinstance(above, ast.Attribute) and isinstance(above.ctx, ast.Store)
