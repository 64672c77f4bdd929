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
from ...source.bindings import bindings, loop_of
from ...source.dataflow import simple
from ...source.editor import dotted
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
    if write is None or write.root is None or write.sets_data:
        return
    code, statement = write.code, write.statement
    if (saved and _is_update(write)) or not simple(statement):
        return
    held = tensor_written(write)
    tensor, text, after = _without_alias(write, held)
    if tensor is None:
        return
    new = as_new_tensor(problem, code, text, item=isinstance(held, ast.Subscript) and not after)
    lines = [*([new.line] if new is not None else []), *after]
    between = f"{code.newline}{code.indent(statement)}" if code.alone(statement) else "; "
    if lines:
        form = "silent_tracked: after a save" if saved else "silent_tracked"
        yield in_one_text(code, [code.replace(statement, between.join(lines))], lines[0], _WHY, form)
    if code.alone(statement):
        copy = f"{tensor} = {tensor}.clone()"
        edit = code.replace(statement, between.join([copy, text, *after]))
        title = message("title_before", what=copy, other=text)
        form = "silent_tracked: on a copy after a save" if saved else "silent_tracked: on a copy"
        yield in_one_text(code, [edit], title, _WHY, form)


def _is_update(write: Site) -> bool:
    """``p.data -= lr * p.grad``, and what is done to each of some tensors: their values are meant, and no history."""
    name = write.root_text or ""
    return reads_gradient(write.statement) or loop_of(write.code, write.statement, name) is not None


def _without_alias(write: Site, tensor: ast.expr | None) -> tuple[str | None, str, list[str]]:
    """The tensor itself, the statement with the tensor in place of its alias, and how the alias is made again.

    ``tensor``: what of the written expression names one, be it an item of a list.
    """
    code, statement, held = write.code, write.statement, write.root
    name = dotted(held) if held is not None else None
    if held is None or tensor is None or write.target is None or name is None:
        return None, "", []
    aliases = [node for node in ast.walk(write.target) if is_alias(node)]
    if aliases:  # what the value is computed from would come from outside the graph again
        value = statement.value if isinstance(statement, ast.Assign) else None
        read = [n for n in ast.walk(value) if isinstance(n, ast.expr) and is_alias(n)] if value is not None else []
        aliases += [n for n in read if (of := root(n)) is not None and dotted(of) == name]
        return code.text(tensor), code.edited(statement, unaliased(code, aliases)), []
    for value in [b.value for b in bindings(code, name, statement)[:1] if b.value is not None]:
        base = root(value)
        if is_alias(value) and base is not None and dotted(base) is not None:  # a view of it has to be written through
            whole = code.text(base)
            return whole, code.edited(statement, [code.replace(held, whole)]), [f"{name} = {code.text(value)}"]
    return None, "", []
