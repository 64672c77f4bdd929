"""What was to be a leaf is one: it requires grad once it is computed, and no sooner.

w = torch.randn(3, requires_grad=True) * 0.1      w = (torch.randn(3) * 0.1).requires_grad_()
b = nn.Parameter(torch.zeros(3)).double()         b = nn.Parameter(torch.zeros(3).double())
w = w.to(device)                                  w = w.to(device).detach().requires_grad_()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.bindings import made_last
from ...source.dataflow import called_name, is_functional, keyword_named, reads
from ...source.editor import Code, Edit, atom
from ..analysis.targets import VIEW_ATTRIBUTES
from ..problem import Problem
from ..proposal import Proposal, each_then_all
from ..registry import register

_WHY = message("why_leaf_of_result")
_NO_TENSOR = frozenset({"size", "item", "numel", "dim", "tolist", "numpy", "stride", "backward"})
_MOST = 8  # of them that are tried one by one


@register("silent", "second_backward")
def leaf_of_result(problem: Problem) -> Iterator[Proposal]:
    if problem.family == "silent":
        writes = [clash.write for clash in (problem.clash, *problem.evidence.clashes)]
        if writes[0] is None or writes[0].how != "of_result":
            return
        names = [one.name for one in writes if one is not None and one.how == "of_result" and one.name is not None]
    else:
        holders = [holder for edge in problem.crossing.over for holder in edge.holders]
        names = [f"self.{one.path}" for one in holders if one.of_object]
        names += [one.path for one in holders if one.scope == "<module>"]
    parts: dict[ast.stmt, tuple[Code, list[Edit]]] = {}
    for name in dict.fromkeys(names):
        if (found := made_last([*problem.codes()], name)) is not None:
            code, statement, value = found
            edits = _made_leaves(code, value) or (_anew(code, value, name) if problem.family == "silent" else [])
            if edits:
                known = parts.setdefault(statement, (code, []))[1]
                known += [edit for edit in edits if edit not in known]
    for some in each_then_all(list(parts)) if len(parts) <= _MOST else [list(parts)]:
        code, edits = parts[some[0]]
        changes = tuple((parts[s][0], edit) for s in some for edit in parts[s][1])
        title = " ".join(code.edited(some[0], edits).split())
        yield Proposal(title, _WHY, "leaf_of_result", changes, meant=True)


def _anew(code: Code, value: ast.expr, name: str) -> list[Edit]:
    """The edit by which what a name holds becomes a leaf, where it is computed of what the name held: ``w = w.to(device)``."""
    computed = isinstance(value, ast.BinOp | ast.UnaryOp | ast.Call) and name in reads(value)
    return [code.behind(value, ".detach().requires_grad_()")] if computed else []


def _made_leaves(code: Code, value: ast.expr) -> list[Edit]:
    """The edits by which what is computed of leaves that are made within an expression becomes leaves itself."""
    made: dict[ast.expr, list[ast.Call]] = {}
    makers = {node for node in ast.walk(value) if isinstance(node, ast.Call) and _makes_leaf(node)}
    for maker in (one for one in makers if not makers & {*code.parents(one)}):
        made.setdefault(_computed_of(code, maker, value), []).append(maker)
    return [_behind(code, makers, outer) for outer, makers in made.items() if outer not in makers]


def _makes_leaf(node: ast.AST) -> bool:
    """``torch.rand(3, requires_grad=True)``, ``torch.rand(3).requires_grad_()``, ``nn.Parameter(x)``: without a condition."""
    if not isinstance(node, ast.Call):
        return False
    given, wanted = [*node.args, *(k.value for k in node.keywords)], keyword_named(node, "requires_grad")
    if called_name(node) == "Parameter":
        return len(given) == 1 and wanted is None
    if called_name(node) == "requires_grad_":
        made_here = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call)
        return made_here and all(isinstance(one, ast.Constant) and one.value is True for one in given)
    return wanted is not None and isinstance(wanted.value, ast.Constant) and wanted.value.value is True


def _computed_of(code: Code, maker: ast.expr, whole: ast.expr) -> ast.expr:
    """The outermost expression that torch's operators, methods and functions compute of a leaf that is made in it."""
    found, within = maker, maker
    for above in code.parents(maker):
        if within is whole or _makes_leaf(above):
            break
        method = isinstance(above, ast.Attribute) and getattr(code.parent(above), "func", None) is above
        if method and above.attr in _NO_TENSOR:  # type: ignore[attr-defined]
            break
        called = isinstance(above, ast.Call) and (above.func is within or is_functional(above.func))
        looks = isinstance(above, ast.Attribute) and above.attr in VIEW_ATTRIBUTES
        computes = called or looks or isinstance(above, ast.BinOp | ast.UnaryOp)
        if not (computes or method or isinstance(above, ast.Subscript)):
            break
        within = above  # type: ignore[assignment]
        found = found if method else within
    return found


def _behind(code: Code, makers: list[ast.Call], outer: ast.expr) -> Edit:
    """The makers' part of the work moved behind all that is computed of them."""
    inner = [_plain(code, maker) for maker in makers]
    text, parameter = code.edited(outer, inner), next((m for m in makers if called_name(m) == "Parameter"), None)
    if parameter is not None:
        return code.replace(outer, f"{code.text(parameter.func)}({text})")
    closed = isinstance(outer, ast.BinOp | ast.UnaryOp)
    return code.replace(outer, f"({text}).requires_grad_()" if closed else f"{text}.requires_grad_()")


def _plain(code: Code, maker: ast.Call) -> Edit:
    """The same without a gradient."""
    wanted = keyword_named(maker, "requires_grad")
    if called_name(maker) == "Parameter":
        return code.replace(maker, atom(code, maker.args[0] if maker.args else maker.keywords[0].value))
    if called_name(maker) == "requires_grad_" and isinstance(maker.func, ast.Attribute):
        return code.replace(maker, code.text(maker.func.value))
    assert wanted is not None
    return code.without_argument(wanted)
