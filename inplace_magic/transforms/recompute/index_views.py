"""Views that were made all at once may not be written; views made one by one may.

for box in boxes:                         for i in range(len(boxes)):
                                              box = boxes[i]
    box[:, 0].clamp_(0, w)                    box[:, 0].clamp_(0, w)

for t, m, s in zip(image, mean, std):     for i, (t, m, s) in enumerate(zip(image, mean, std)):
                                              t = image[i]
    t.sub_(m).div_(s)                         t.sub_(m).div_(s)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.bindings import argument, gone_through, loop_of
from ...source.dataflow import called_name
from ...source.editor import Code, Edit, atom, dotted
from ...source.lift import unused
from ..analysis.targets import Site, root, sites
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_index_views")


@register("multi_output_view", "no_grad_view")
def index_views(problem: Problem) -> Iterator[Proposal]:
    for write, name in _held(problem):
        loop = loop_of(write.code, write.statement, name)
        tensor = _whole(gone_through(loop, name)) if loop is not None else None
        if loop is None or tensor is None or loop.body[0].lineno == loop.lineno:
            continue
        index, edits = _counted(write.code, loop)
        line = f"{name} = {atom(write.code, tensor)}[{index}]"
        yield in_one_text(
            write.code, [*edits, write.code.insert_before(loop.body[0], line)], line, _WHY, "index_views", local=True
        )


def _held(problem: Problem) -> Iterator[tuple[Site, str]]:
    """The frames of the write, innermost first, each with the name that it hands on to the one inside of it."""
    inner: ast.AST | None = None
    name: str | None = None
    for site in sites(problem, depth=len(problem.write_stack)):
        given = argument(inner, name, site.expression) if name is not None else None
        held = root(given) if given is not None else site.root
        inner, name = site.code.function(site.statement), site.code.text(held) if held is not None else None
        if name is not None:
            yield site, name


def _counted(code: Code, loop: ast.For) -> tuple[str, list[Edit]]:
    """The name that counts the iterations, and the edits by which there is one."""
    target = loop.target
    if called_name(loop.iter) == "enumerate" and isinstance(target, ast.Tuple) and isinstance(target.elts[0], ast.Name):
        return target.elts[0].id, []
    index, items = unused("i", code), code.text(target)
    tensor = _whole(loop.iter)
    if tensor is not None and isinstance(target, ast.Name):
        return index, [code.replace(target, index), code.replace(loop.iter, f"range(len({code.text(tensor)}))")]
    items = f"({items})" if isinstance(target, ast.Tuple) and not items.startswith("(") else items
    return index, [
        code.replace(target, f"{index}, {items}"),
        code.replace(loop.iter, f"enumerate({code.text(loop.iter)})"),
    ]


def _whole(node: ast.expr | None) -> ast.expr | None:
    """``x`` of ``x`` or ``x.unbind(0)``, where it can be indexed over and over; None for anything else."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "unbind":
        dims = [*node.args, *(k.value for k in node.keywords)]
        node = node.func.value if all(isinstance(d, ast.Constant) and d.value == 0 for d in dims) else None
    indexed = node is not None and (dotted(node) is not None or (isinstance(node, ast.Subscript) and root(node)))
    return node if indexed else None
