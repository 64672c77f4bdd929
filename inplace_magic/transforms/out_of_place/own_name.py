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
from ...source.editor import Code, Edit, Function, Loop
from ...source.lift import unused
from ..analysis.targets import Site, written
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
    made = _made(problem, write, name)
    if made is not None:
        edits, title = made
        edits += [code.replace(read, name) for read in after]
        yield in_one_text(code, edits, title, _WHY, "out_of_place: own name", local=True)


def _bound_anew(statement: ast.stmt) -> ast.expr | None:
    """What an assignment binds."""
    return statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None


def _made(problem: Problem, write: Site, name: str) -> tuple[list[Edit], str] | None:
    """The edits that give the new name what was written, and the new line."""
    code, statement, root = write.code, write.statement, write.root
    if root is None:
        bound = _bound_anew(statement)
        assert bound is not None
        edit = code.replace(bound, name)
        return [edit], code.edited(statement, [edit])
    if write.target is not root:
        line = f"{name} = {write.root_text}.clone()"
        written = [n for n in ast.walk(statement) if _is_same(code, n, root)]
        return [code.insert_before(statement, line), *(code.replace(n, name) for n in written)], line
    new = as_new_tensor(problem, code.text(statement))
    if new is None or " = " not in new:
        return None
    line = f"{name} = {new.split(' = ', 1)[1]}"
    return [code.replace(statement, line)], line


def _is_set(code: Code, read: ast.expr) -> bool:
    """``self.weight.requires_grad = False``"""
    above = code.parent(read)
    return isinstance(above, ast.Attribute) and isinstance(above.ctx, ast.Store)


def _is_same(code: Code, node: ast.AST, root: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and code.text(node) == code.text(root)
