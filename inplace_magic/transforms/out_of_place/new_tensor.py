"""One statement or call that writes in place, as one that makes a new tensor."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ...source.bindings import loop_of, value_of
from ...source.dataflow import called_name, calls, is_functional, is_inplace_name, keyword_named, receiver
from ...source.document import CellSource
from ...source.editor import Code, Edit, atom, dotted
from ...source.modules import module_has, module_of
from ..analysis.targets import called_target, gives_out, torch_name
from ..problem import Problem
from .inplace_flag import flag, without_flag

# In-place methods whose out-of-place form has another name; {x} is the tensor, {y} the first argument.
_RENAMED = {
    "zero_": ("{torch}.zeros_like({x})", 0), "fill_": ("{torch}.full_like({x}, {y})", 1), "copy_": ("{y}.clone()", 1),
    "normal_": ("{torch}.randn_like({x})", 0), "uniform_": ("{torch}.rand_like({x})", 0),
}  # fmt: skip
_GIVE_MASKS = frozenset({"isnan", "isinf", "isfinite", "bool", "eq", "ne", "lt", "le", "gt", "ge", "logical_not"})


@dataclass(frozen=True)
class Rewrite:
    """Edits of one cell, and what they write: a new value, and the name that it is given; None where it needs none.

    ``unsure``: whether the two mean the same depends on shapes.
    """

    edits: tuple[Edit, ...]
    target: str | None
    value: str
    unsure: bool = False

    @property
    def line(self) -> str:
        return self.value if self.target is None else f"{self.target} = {self.value}"


def writes_in_place(call: ast.Call) -> bool:
    return _method(call) or _flag(call) is not None or keyword_named(call, "out") is not None


def _method(call: ast.Call) -> bool:
    """``x.add_(y)`` or ``torch.relu_(x)``, not ``nn.init.zeros_(w)`` or a function of the user's own."""
    if not isinstance(call.func, ast.Attribute) or not is_inplace_name(call.func.attr):
        return False
    module = module_of(call.func.value)
    if module is not None:
        return module_has(module, call.func.attr[:-1])
    return dotted(call.func.value) not in ("self", "cls")


def _flag(call: ast.Call) -> ast.keyword | ast.expr | None:
    """``inplace=True`` of a functional call, not of a module's constructor."""
    return flag(call) if called_name(call)[:1].islower() else None


def _assigned(code: Code, statement: ast.stmt, target: str, value: str) -> Rewrite:
    return Rewrite((code.replace(statement, f"{target} = {value}"),), target, value)


def augmented(code: Code, statement: ast.AugAssign, heard: bool = False) -> Rewrite:
    """``heard``: what the graph goes on from is not made from another look past the graph."""
    of: ast.expr = statement.target
    while heard and isinstance(of, ast.Attribute) and is_alias(of):
        of = of.value
    # Python writes the value in parentheses where it needs them.
    _, operator, value = ast.unparse(ast.BinOp(ast.Name("x"), statement.op, statement.value)).split(" ", 2)
    text = code.text(statement.value)
    bare = value == ast.unparse(statement.value) and "\n" not in text
    return _assigned(code, statement, code.text(of), f"{code.text(of)} {operator} {text if bare else f'({text})'}")


def is_alias(node: ast.AST | None) -> bool:
    """``x.detach()``, ``torch.Tensor.detach(x)``, ``x.data``"""
    if isinstance(node, ast.Call):
        return called_name(node) == "detach" and receiver(node) is not None
    return isinstance(node, ast.Attribute) and node.attr == "data"


def unaliased(code: Code, nodes: Iterable[ast.AST]) -> list[Edit]:
    """Takes ``.detach()`` or ``.data`` off each."""
    edits = []
    for node in nodes:
        inner = receiver(node) if isinstance(node, ast.Call) else node.value  # type: ignore[attr-defined]
        (start, end), (first, last) = code.span(node), code.span(inner)  # type: ignore[arg-type]
        edits += [Edit(start, first, ""), Edit(last, end, "")]
    return edits


def as_new_tensor(problem: Problem, around: Code, text: str, item: bool = False) -> Rewrite | None:
    """One statement of some code, or what was made of it, out of place, as an assignment; None where it has no such form.
    ``item``: a subscript that it writes into is an item of a list or dict, and no part of a tensor.
    """
    try:
        code = Code(CellSource(0, text, modules=around.modules))
    except ValueError:
        return None
    statement = code.tree.body[0]
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Subscript) and not item:
        return None
    target = statement.targets[0] if isinstance(statement, ast.Assign) and not item else None
    call = statement.value if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) else None
    return rewritten(problem, code, statement, target, call, called_target(call) if item and call is not None else None)


def rewritten(
    problem: Problem,
    code: Code,
    statement: ast.stmt,
    target: ast.expr | None,
    call: ast.Call | None,
    tensor: ast.expr | None = None,
) -> Rewrite | None:
    """A statement that writes into ``target``, or by a call, as one that makes a new tensor; ``tensor``: known to be one."""
    torch = torch_name(problem) or "torch"
    if isinstance(statement, ast.AugAssign):
        return augmented(code, statement)
    if isinstance(statement, ast.Assign) and isinstance(target, ast.Subscript) and target in statement.targets:
        return masked(code, statement, target, torch, tensor)
    return called_out_of_place(code, call, torch, tensor) if call is not None else None


# ---- masks ------------------------------------------------------------------------------------------------------


def masked(
    code: Code, statement: ast.Assign, target: ast.Subscript, torch: str, tensor: ast.expr | None = None
) -> Rewrite | None:
    """``x[mask] = v`` with one boolean mask, as masked_fill or where; ``tensor``: what is known to be one."""
    where, value = code.text(target.slice), statement.value
    name = _assignable(code, target.value, tensor)
    if name is None or not _may_be_mask(code, target.slice, statement):
        return None
    if isinstance(value, ast.Subscript) and code.text(value.slice) == where:
        new = _assigned(code, statement, name, f"{torch}.where({where}, {code.text(value.value)}, {name})")
        return replace(new, unsure=True)
    return _assigned(code, statement, name, f"{name}.masked_fill({where}, {code.text(value)})")


def _may_be_mask(code: Code, node: ast.expr, near: ast.stmt) -> bool:
    """False for what is known to count or to cut; what is not known is verified, and torch takes no other mask."""
    match node:
        case ast.Compare():
            return True
        case ast.UnaryOp(op) | ast.BinOp(op=op):
            return isinstance(op, (ast.Invert, ast.BitAnd, ast.BitOr, ast.BitXor))
        case ast.Call():
            return called_name(node) in _GIVE_MASKS
        case ast.Attribute(of, "data"):
            return _may_be_mask(code, of, near)
    name = dotted(node)
    if name is None or loop_of(code, near, name) is not None:
        return False
    given = value_of(code, name, near)
    known = given is not None and not isinstance(given, (ast.Call, ast.Name, ast.Attribute, ast.Subscript))
    return not known or _may_be_mask(code, given, near)  # type: ignore[arg-type]


# ---- calls ------------------------------------------------------------------------------------------------------


def called_out_of_place(code: Code, call: ast.Call, torch: str, tensor: ast.expr | None = None) -> Rewrite | None:
    """A call in place, with the in-place calls that it is chained to on both sides; ``tensor``: what is known to be one."""
    statement = code.statement(call)
    chain = [n for n in calls(statement) if writes_in_place(n) and (n is call or _inner(n, call) or _inner(call, n))]
    if not chain:
        return None
    whole = max(chain, key=lambda n: code.span(n)[1] - code.span(n)[0])
    first = min(chain, key=lambda n: code.span(n.func)[1])
    if any(called_name(n) in _RENAMED for n in chain):
        renamed = _renamed(code, call, torch) if len(chain) == 1 else None
        edits = [code.replace(call, renamed)] if renamed is not None else []
    elif len(chain) == 1 and (drawn := _drawn(code, call, torch)) is not None:
        edits = [code.replace(call, drawn)]
    else:
        edits = [edit for n in chain for edit in _strip(code, n)]
    text = code.edited(whole, edits)
    if not isinstance(statement, ast.Expr) or gives_out(statement):
        return Rewrite(tuple(edits), None, text) if edits else None
    target = _assignable(code, called_target(first), tensor)
    if statement.value is not whole or target is None or not edits:
        return None
    start, _ = code.span(statement)
    return Rewrite((*edits, Edit(start, start, f"{target} = ")), target, text)


def _assignable(code: Code, node: ast.expr | None, tensor: ast.expr | None) -> str | None:
    """The text of what is written as the target of an assignment, where it is a name, or known to be a tensor. A slice would
    be written in place again, so it is none."""
    if node is not None and node is tensor:
        return code.text(node)
    return ", ".join(code.text(e) for e in node.elts) if isinstance(node, ast.Tuple) else dotted(node)


def _renamed(code: Code, call: ast.Call, torch: str) -> str | None:
    method = call.func
    form, arguments = _RENAMED[called_name(call)]
    if not isinstance(method, ast.Attribute) or is_functional(method.value):
        return None
    if len(call.args) != arguments or call.keywords:
        return None
    if method.attr == "copy_" and isinstance(call.args[0], ast.BinOp):
        return code.text(call.args[0])  # new, without a copy
    y = atom(code, call.args[0]) if method.attr == "copy_" else "".join(code.text(a) for a in call.args)
    return form.format(torch=torch, x=code.text(method.value), y=y)


def _drawn(code: Code, call: ast.Call, torch: str) -> str | None:
    """``torch.normal(mean, std, out=z)`` with a gradient, which torch.normal gives to neither (Kingma and Welling 2014)."""
    named = {str(keyword.arg): keyword.value for keyword in call.keywords}
    given = {**dict(zip(("mean", "std"), call.args)), **named}
    if called_name(call) != "normal" or len(call.args) > 2 or given.keys() != {"mean", "std", "out"}:
        return None
    mean, std, out = atom(code, given["mean"]), atom(code, given["std"]), code.text(given["out"])
    text = f"{mean} + {std} * {torch}.randn_like({out})"
    return text if isinstance(code.parent(call), ast.stmt) else f"({text})"


def _inner(inner: ast.Call, outer: ast.AST) -> bool:
    """Whether ``outer`` goes on, in place all the way, from what ``inner`` gives: between them lies no new tensor."""
    while isinstance(outer, ast.Call) and isinstance(outer.func, ast.Attribute) and writes_in_place(outer):
        outer = outer.func.value
        if outer is inner:
            return True
    return False


def _strip(code: Code, call: ast.Call) -> list[Edit]:
    """Takes the underscore off a method's name, or the flag or ``out=`` out of the arguments."""
    edits = []
    given, out = _flag(call), keyword_named(call, "out")
    if given is not None:
        edits.append(without_flag(code, call, given))
    if out is not None:
        edits.append(code.without_argument(out))
    if _method(call):
        _, end = code.span(call.func)
        edits.append(Edit(end - 1, end, ""))
    return edits
