"""Code that writes into a parameter, an input that requires grad, or what ctx keeps works on a value under its own name.

self.weight.div_(self.weight.norm())      weight = self.weight.div(self.weight.norm())
return x @ self.weight.t()                return x @ weight.t()

self.table[0] = 0                         table = self.table.clone()
return F.embedding(ids, self.table)       table[0] = 0
                                          return F.embedding(ids, table)

part = image[:, :8]                       image_2 = image.clone()
part *= 0.5                               part = image_2[:, :8]
loss = f(net(image))                      part *= 0.5
loss.backward()                           loss = f(net(image_2))
print(image.grad)                         ...

Bound anew itself, a parameter's attribute would be refused by its module, and a name would no longer lead to the leaf.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ...message import message
from ...source.bindings import bindings, later, reads
from ...source.blocks import loops, scope, within
from ...source.dataflow import assigned
from ...source.editor import Code, Edit, Function, Loop
from ...source.names import declared, named
from ..analysis.targets import Site, is_of_leaf, seen_through, written
from ..grad_mode.no_grad import is_input
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register
from .new_tensor import as_new_tensor

_WHY = message("why_own_value")


@register("leaf", "view_of_leaf", "silent")
def own_name(problem: Problem) -> Iterator[Proposal]:
    write = written(problem)
    if write is None:
        return
    bound = assigned(write.statement) if problem.family == "silent" else []
    root = write.root or next(iter(bound), None)
    if isinstance(root, ast.Attribute):
        yield from _of_attribute(problem, write, root)
    elif isinstance(root, ast.Name) and problem.family != "silent" and is_input(problem, write):
        yield from _of_input(problem, write, root)


def _of_attribute(problem: Problem, write: Site, root: ast.Attribute) -> Iterator[Proposal]:
    code, statement, path = write.code, write.statement, write.code.text(root)
    around = next((above for above in code.parents(statement) if isinstance(above, (Loop, *Function))), None)
    after = [read for read in reads(code, path, later(code, statement)) if not is_of_leaf(code, read)]
    if not isinstance(around, Function) or not after or not code.alone(statement):
        return
    if not _all_behind(code, statement, after):
        return
    name = problem.unused(path.rpartition(".")[2], code, statement)
    if write.root is None:
        edits = [code.replace(node, name) for node in (root, *after)]
        line = code.edited(statement, edits[:1])
    else:
        line, edits = _worked_on(problem, write, statement, path, name, after)
    yield in_one_text(code, edits, line, _WHY, "out_of_place: own name")


def _of_input(problem: Problem, write: Site, root: ast.Name) -> Iterator[Proposal]:
    """What a leaf is asked later on, its gradient first of all, it goes on being asked itself."""
    code, view = write.code, bindings(write.code, root.id, write.statement)[:1]
    whole = seen_through(code, root.id, write.statement)
    path, first = (root.id, write.statement) if whole is None else (whole, view[0].statement)
    first = next(reversed(loops(code, first)), first)  # one value for all iterations
    behind = [n for n in named(code, path, later(code, first)) if n.lineno > (first.end_lineno or 0)]
    itself = [n for n in behind if is_of_leaf(code, n)]
    after = [n for n in behind if n not in itself]
    if not (whole or (itself and after)) or any(isinstance(n.ctx, ast.Store) for n in behind):
        return
    if path in declared(scope(code, first)) or not _all_behind(code, first, after):
        return
    name = problem.unused(path, code, first) if itself else path
    line, edits = _worked_on(problem, write, first, path, name, after)
    begins = frozenset([path, *write.event.held])
    yield in_one_text(code, edits, line, _WHY, "out_of_place: own name", begins=begins)


def _all_behind(code: Code, first: ast.stmt, reads: Sequence[ast.expr]) -> bool:
    """Whether all reads stand behind a statement in its block, where a name that it makes certainly has a value."""
    return all(within(code, [first, *code.following(first)], code.statement(node)) is not None for node in reads)


def _worked_on(
    problem: Problem, write: Site, first: ast.stmt, path: str, name: str, after: Sequence[ast.expr]
) -> tuple[str, list[Edit]]:
    """The line by which a name is given a value of its own, and the edits by which a statement and the reads after it use it."""
    code = write.code
    alone = write.target is write.root and first is write.statement
    new = as_new_tensor(problem, code, code.text(first)) if alone else None
    if new is not None and new.target is not None:
        line = f"{name} = {new.value}"
        edits = [code.replace(first, line)]
    else:
        line = f"{name} = {path}.clone()"
        same = [n for n in ast.walk(first) if isinstance(n, (ast.Name, ast.Attribute)) and code.text(n) == path]
        edits = [code.insert_before(first, line), *(code.replace(n, name) for n in same)]
    return line, [*edits, *(code.replace(read, name) for read in after)]
