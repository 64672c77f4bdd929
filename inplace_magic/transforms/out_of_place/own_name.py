"""A forward that writes into a parameter, or a backward into what ctx keeps, works on a value under a name of its own.

self.weight.div_(self.weight.norm())      weight = self.weight.div(self.weight.norm())
return x @ self.weight.t()                return x @ weight.t()

self.table[0] = 0                         table = self.table.clone()
return F.embedding(ids, self.table)       table[0] = 0
                                          return F.embedding(ids, table)

emb.weight[0] = self.vector               weight = emb.weight.clone()
return self.encoder(ids)                  weight[0] = self.vector
                                          return torch.func.functional_call(self.encoder, {"emb.weight": weight}, (ids,))

The attribute itself could not be bound anew: a module keeps nothing but a Parameter under a parameter's name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ...message import message
from ...source.bindings import later, reads
from ...source.editor import Code, Function, Loop, dotted
from ...source.lift import unused
from ..analysis.functional_calls import functional_call
from ..analysis.targets import Site, reads_gradient, torch_in, written
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
    block = code.block(statement)
    around = next((above for above in code.parents(statement) if isinstance(above, (Loop, *Function))), None)
    behind: list[ast.AST] = [*block[block.index(statement) + 1 :]]
    torch, imported = torch_in(problem, code) or ("", [])
    calls = list(_of_owners(problem, write, behind)) if torch else []
    after = reads(code, path, later(code, statement) if isinstance(around, Function) else behind)
    if any(_is_set(code, read) for read in after) or not code.alone(statement):
        return  # what is said of the parameter would be said of a value that nobody else has
    if not calls and not (after and isinstance(around, Function)):
        return
    name = unused(path.rpartition(".")[2], code)
    new = as_new_tensor(problem, code.text(statement)) if write.target is write.root else None
    if write.root is None:
        edits = [code.replace(root, name)]
        line = code.edited(statement, edits)
    elif new is not None and new.target is not None:
        line = f"{name} = {new.value}"
        edits = [code.replace(statement, line)]
    else:
        line = f"{name} = {path}.clone()"
        same = [n for n in ast.walk(statement) if isinstance(n, ast.Attribute) and code.text(n) == path]
        edits = [code.insert_before(statement, line), *(code.replace(n, name) for n in same)]
    edits += [code.replace(read, name) for read in after]
    edits += imported if calls else []
    for call, parameter in calls:
        edits += functional_call(code, call, f'{{"{parameter}": {name}}}', torch)
    yield in_one_text(code, edits, line, _WHY, "out_of_place: own name", local=True)


def _of_owners(problem: Problem, write: Site, nodes: list[ast.AST]) -> Iterator[tuple[ast.Call, str]]:
    """The calls of modules to which the written parameter belongs, each with the name that it has in the module.

    An update is to be seen by all who have the parameter.
    """
    event = problem.clash.write
    if event is None or not event.parameter or reads_gradient(write.statement):
        return
    for call in (node for top in nodes for node in ast.walk(top) if isinstance(node, ast.Call)):
        module = dotted(call.func) or ""
        for path in event.held:
            if re.fullmatch(rf"{re.escape(module)}(\.\w+|\[\d+\])+", path):
                yield call, re.sub(r"\[(\d+)\]", r".\1", path.removeprefix(module)).removeprefix(".")
                break


def _bound_anew(statement: ast.stmt) -> ast.expr | None:
    """What an assignment binds."""
    return statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None


def _is_set(code: Code, read: ast.expr) -> bool:
    """``self.weight.requires_grad = False``"""
    above = code.parent(read)
    return isinstance(above, ast.Attribute) and isinstance(above.ctx, ast.Store)
