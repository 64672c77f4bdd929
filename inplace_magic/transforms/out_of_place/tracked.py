"""A change made through ``detach()`` or ``.data``, which the graph never hears of, becomes an operation of the graph.

h.detach().clamp_(min=0)          h = h.clamp(min=0)
h.data *= mask                    h = h * mask
h.data[bad] = 0                   h = h.masked_fill(bad, 0)
h.data[:, 0] = h.data[:, 0] / 2   h = h.clone()
                                  h[:, 0] = h[:, 0] / 2
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.bindings import loop_of, value_of
from ...source.dataflow import simple
from ...source.editor import dotted
from ..analysis.meetings import sent_back_again
from ..analysis.targets import Site, reads_gradient, root, tensor_written, written
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register
from .new_tensor import as_new_tensor, is_alias, unaliased

_WHY = message("why_change_tracked")


@register("silent")
def tracked(problem: Problem) -> Iterator[Proposal]:
    # Where the change came after a value was saved, it is that value which was meant; unless more is changed so.
    write, saved = written(problem), problem.clash.save is not None
    if write is None or write.sets_data or not simple(write.statement):
        return
    if saved and (_is_update(write) or sent_back_again(problem)):
        return
    code, statement, held = write.code, write.statement, tensor_written(write)
    tensor, text, after = _without_alias(write, held)
    if tensor is None:
        return
    new = as_new_tensor(problem, code, text, item=isinstance(held, ast.Subscript) and not after)
    lines = [*([new.line] if new is not None else []), *after]
    if lines:
        edit = code.replace(statement, _between(write).join(lines))
        yield in_one_text(code, [edit], lines[0], _WHY, "silent_tracked" + (": after a save" if saved else ""))
    if code.alone(statement):
        copy = f"{tensor} = {tensor}.clone()"
        edit = code.replace(statement, _between(write).join([copy, text, *after]))
        title = message("title_before", what=copy, other=text)
        yield in_one_text(code, [edit], title, _WHY, "silent_tracked: on a copy" + (" after a save" if saved else ""))


def _between(write: Site) -> str:
    """What stands between the lines that take the place of one."""
    alone = write.code.alone(write.statement)
    return f"{write.code.newline}{write.code.indent(write.statement)}" if alone else "; "


def _is_update(write: Site) -> bool:
    """``p.data -= lr * p.grad``, and what is done to each of some tensors: their values are meant, and no history."""
    of_loop = loop_of(write.code, write.statement, write.root_text or "") is not None
    return of_loop or reads_gradient(write.statement)


def _without_alias(write: Site, tensor: ast.expr | None) -> tuple[str | None, str, list[str]]:
    """The tensor itself, the statement with the tensor in place of its alias, and how the alias is made again.

    ``tensor``: what of the written expression names one, be it an item of a list.
    """
    code, statement, held, name = write.code, write.statement, write.root, dotted(write.root)
    if held is None or tensor is None or write.target is None or name is None:
        return None, "", []
    aliases = [node for node in ast.walk(write.target) if is_alias(node)]
    if aliases:  # what the value is computed from would come from outside the graph again
        values = [statement.value] if isinstance(statement, ast.Assign) else []
        read = [n for value in values for n in ast.walk(value) if isinstance(n, ast.expr) and is_alias(n)]
        aliases += [n for n in read if dotted(root(n)) == name]
        return code.text(tensor), code.edited(statement, unaliased(code, aliases)), []
    alias = value_of(code, name, statement)
    whole = dotted(root(alias))
    if alias is None or whole is None or not is_alias(alias):
        return None, "", []
    # A view of it has to be written through.
    return whole, code.edited(statement, [code.replace(held, whole)]), [f"{name} = {code.text(alias)}"]
