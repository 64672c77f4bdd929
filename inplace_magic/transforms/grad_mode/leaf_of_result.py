"""What was to be a leaf is one: it requires grad once it is computed, and no sooner.

w = torch.randn(3, requires_grad=True) * 0.1      w = (torch.randn(3) * 0.1).requires_grad_()
b = nn.Parameter(torch.zeros(3)).double()         b = nn.Parameter(torch.zeros(3).double())
w = w.to(device)                                  w = w.to(device).detach().requires_grad_()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.bindings import bound, last_bound
from ...source.dataflow import called_name, keyword_named
from ...source.editor import Code, Edit
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_leaf_of_result")
_Operation = ast.BinOp | ast.UnaryOp | ast.Call | ast.Attribute | ast.Subscript


@register("silent", "second_backward")
def leaf_of_result(problem: Problem) -> Iterator[Proposal]:
    write = problem.clash.write
    asked = write is not None and write.how == "of_result"
    if problem.family == "silent" and not asked:
        return
    holders = (holder for edge in problem.crossing.over for holder in edge.holders)
    carried = (f"self.{one.path}" if one.of_object else one.path for one in holders)
    for name in filter(None, [write.name] if write is not None and asked else dict.fromkeys(carried)):
        if (found := last_bound(problem.codes(), name)) is not None:
            yield from _as_leaf(*found, asked)


def _as_leaf(code: Code, statement: ast.stmt, value: ast.expr, asked: bool) -> Iterator[Proposal]:
    """``asked``: the gradient of the value is looked for, so that it is to be a leaf wherever its own was made."""
    edits = _made_leaves(code, value)
    if (
        not edits
        and asked
        and isinstance(value, _Operation)
        and not (isinstance(value, ast.Call) and _makes_leaf(value))
    ):
        edits = [code.behind(value, ".detach().requires_grad_()")]
    if edits:
        title = " ".join(code.edited(statement, edits).split())
        yield in_one_text(code, edits, title, _WHY, "leaf_of_result", meant=True)
        # The layers of a net that is written by hand are made one like the other.
        values = (one for s in code.block(statement) for _, one in bound(code, s) if one is not None)
        alike = [edit for one in values for edit in _made_leaves(code, one)]
        if len(alike) > len(edits):
            yield in_one_text(code, alike, title, _WHY, "leaf_of_result", meant=True)


def _made_leaves(code: Code, value: ast.expr) -> list[Edit]:
    """The edits by which what is computed of leaves that are made within an expression becomes leaves itself."""
    makers = [node for node in ast.walk(value) if isinstance(node, ast.Call) and _makes_leaf(node)]
    outermost = ((maker, _computed_of(code, maker, value)) for maker in makers)
    return [_behind(code, maker, outer) for maker, outer in outermost if outer is not maker]


def _makes_leaf(call: ast.Call) -> bool:
    wanted = keyword_named(call, "requires_grad")
    made = wanted is not None and not (isinstance(wanted.value, ast.Constant) and not wanted.value.value)
    return made or called_name(call) == "requires_grad_" or (called_name(call) == "Parameter" and len(call.args) == 1)


def _computed_of(code: Code, maker: ast.expr, whole: ast.expr) -> ast.expr:
    """The outermost expression that computes one tensor of what is made; a list, or a comprehension, holds several."""
    found: ast.expr = maker
    for above in code.parents(maker):
        if found is whole or not isinstance(above, _Operation):
            return found
        found = above
    return found


def _behind(code: Code, maker: ast.Call, outer: ast.expr) -> Edit:
    """The maker's part of the work moved behind all that is computed of it."""
    wanted = keyword_named(maker, "requires_grad")
    if called_name(maker) == "Parameter":
        text = code.edited(outer, [code.replace(maker, code.text(maker.args[0]))])
        return code.replace(outer, f"{code.text(maker.func)}({text})")
    if wanted is not None:
        inner = code.without_argument(wanted)
    else:
        inner = code.replace(maker, code.text(maker.func.value))  # type: ignore[attr-defined]
    text = code.edited(outer, [inner])
    closed = isinstance(outer, ast.BinOp | ast.UnaryOp)
    return code.replace(outer, f"({text}).requires_grad_()" if closed else f"{text}.requires_grad_()")
