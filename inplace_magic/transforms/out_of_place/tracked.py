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
from ...source.editor import Code, Edit, dotted
from ..analysis.targets import Site, root, sites
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register
from .new_tensor import as_new_tensor

_WHY = message("why_change_tracked")


@register("silent")
def tracked(problem: Problem) -> Iterator[Proposal]:
    # Where the change came after a value was saved, it is that value which was meant; unless more is changed so.
    form = "silent_tracked" if problem.clash.save is None else "silent_tracked: after a save"
    for write in sites(problem, depth=1):
        code, statement = write.code, write.statement
        if problem.clash.save is not None and _is_update(write):
            continue
        if write.target is None or write.root is None or not isinstance(statement, (ast.Expr, ast.AugAssign, ast.Assign)):  # fmt: skip
            continue
        start, end = code.span(statement)
        tensor, text, after = _without_alias(write)
        if tensor is None:
            continue
        lines = [line for line in (as_new_tensor(problem, text), *after) if line]
        if lines:
            new = f"{code.newline}{code.indent(statement)}".join(lines)
            if not code.alone(statement):
                new = "; ".join(lines)
            yield in_one_text(code, [Edit(start, end, new)], lines[0], _WHY, form)
        new = f"{code.newline}{code.indent(statement)}".join([f"{tensor} = {tensor}.clone()", text, *after])
        if code.alone(statement):
            title = message("title_before", what=f"{tensor} = {tensor}.clone()", other=text)
            copied = "silent_tracked: on a copy" + ("" if problem.clash.save is None else " after a save")
            yield in_one_text(code, [Edit(start, end, new)], title, _WHY, copied)


def _is_update(write: Site) -> bool:
    """``p.data -= lr * p.grad``, and what is done to each of some tensors: their values are meant, and no history."""
    name = write.root_text or ""
    gradient = any(isinstance(n, ast.Attribute) and n.attr == "grad" for n in ast.walk(write.statement))
    return gradient or loop_of(write.code, write.statement, name) is not None


def _without_alias(write: Site) -> tuple[str | None, str, list[str]]:
    """The tensor itself, the statement with the tensor in place of its alias, and how the alias is made again."""
    code, statement, held = write.code, write.statement, write.root
    assert held is not None and write.target is not None
    name = dotted(held)
    text = code.text(statement)
    start, _ = code.span(statement)
    edits = [cut(code, node, start) for node in ast.walk(write.target) if is_alias(node)]
    if edits:
        edits += [cut(code, node, start) for node in _read_through(statement) if _root_name(node) == name]
        for begin, end in sorted(edits, reverse=True):
            text = text[:begin] + text[end:]
        return name, text, []
    if name is None:
        return None, "", []
    for binding in bindings(code, name, statement)[:1]:
        base = root(binding.value) if binding.value is not None else None
        if binding.value is None or base is None or dotted(base) is None or not any(map(is_alias, ast.walk(binding.value))):  # fmt: skip
            continue
        if is_alias(binding.value):  # nothing but the alias: a view of it would have to be written through
            begin, end = (offset - start for offset in code.span(held))
            tensor = code.text(base)
            return tensor, text[:begin] + tensor + text[end:], [f"{name} = {code.text(binding.value)}"]
    return None, "", []


def _read_through(statement: ast.stmt) -> list[ast.expr]:
    """The aliases that an assigned value is computed from: it would come from outside the graph again."""
    value = statement.value if isinstance(statement, ast.Assign) else None
    return [n for n in ast.walk(value) if isinstance(n, ast.expr) and is_alias(n)] if value is not None else []


def _root_name(node: ast.expr) -> str | None:
    held = root(node)
    return dotted(held) if held is not None else None


def is_alias(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr == "detach" and not node.args
    return isinstance(node, ast.Attribute) and node.attr == "data"


def cut(code: Code, node: ast.AST, start: int) -> tuple[int, int]:
    """The stretch ``.detach()`` or ``.data``, counted from the statement's beginning."""
    inner = node.func.value if isinstance(node, ast.Call) else node.value  # type: ignore[attr-defined]
    return code.span(inner)[1] - start, code.span(node)[1] - start
