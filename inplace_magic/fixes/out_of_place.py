"""``x += y`` becomes ``x = x + y``, ``x.add_(y)`` becomes ``x = x.add(y)``: a new tensor, the saved one untouched.

    x = F.relu(x)                     x = F.relu(x)
    x += feature                      x = x + feature
    w /= total + eps                  w = w / (total + eps)
    z.mul_(2)                         z = z.mul(2)
    return a.mul_(gate)               return a.mul(gate)
    F.relu_(h)                        h = F.relu(h)
    F.dropout(h, 0.5, inplace=True)   h = F.dropout(h, 0.5)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..places import Spot
from . import Problem, Proposal, register
from .code import Code, Edit, atom, dotted

_OPERATORS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.MatMult: "@", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
# In-place methods whose out-of-place form has another name, or needs more than a name.
_NO_TWIN = frozenset({"zero_", "fill_", "copy_", "set_", "resize_", "normal_", "uniform_", "detach_", "requires_grad_",
                      "random_", "bernoulli_", "exponential_", "data", "__setitem__"})  # fmt: skip


@register(
    "modified", "leaf", "view_of_leaf", "multi_output_view", "no_grad_view", "overlap", "inference", "silent", rank=10
)
def out_of_place(problem: Problem) -> Iterator[Proposal]:
    for spot in problem.write_stack[:1]:
        code = problem.code(spot.cell)
        if code is None:
            continue
        edits, titles = rewrite_at(code, spot)
        if edits:
            yield Proposal(
                title=titles[0] if len(titles) == 1 else f"{titles[0]} and {len(titles) - 1} more",
                why="A new tensor is made; the one that backward needs keeps its value.",
                rule="out_of_place",
                texts={code.cell.number: code.apply(*edits)},
            )


def rewrite_at(code: Code, spot: Spot) -> tuple[list[Edit], list[str]]:
    """The edits that make what stands at the spot out of place, and how each would read."""
    node = code.at(spot)
    if node is None:
        return [], []
    statement = code.statement(node)
    if isinstance(statement, ast.AugAssign):
        return _augmented(code, statement)
    if isinstance(node, ast.Call):
        return _chain(code, node)
    calls = [n for n in ast.walk(statement) if isinstance(n, ast.Call) and _inplace_method(n)]
    return _chain(code, calls[0]) if calls else ([], [])


def _augmented(code: Code, statement: ast.AugAssign) -> tuple[list[Edit], list[str]]:
    if not isinstance(statement.target, (ast.Name, ast.Attribute)):
        return [], []
    target = code.text(statement.target)
    text = f"{target} = {target} {_OPERATORS[type(statement.op)]} {_operand(code, statement.value)}"
    return [code.replace(statement, text)], [text]


def _operand(code: Code, value: ast.expr) -> str:
    text = code.text(value)
    # On several lines without brackets of its own the text would end too early; any operator may bind less tightly.
    return atom(code, value) if "\n" not in text or text[:1] in "([{" else f"({text})"


def _inplace_method(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name.endswith("_") and not name.endswith("__") and name not in _NO_TWIN


def _inplace_flag(call: ast.Call) -> ast.keyword | None:
    return next(
        (k for k in call.keywords if k.arg == "inplace" and isinstance(k.value, ast.Constant) and k.value.value is True),
        None,
    )


def _chain(code: Code, call: ast.Call) -> tuple[list[Edit], list[str]]:
    """A call in place, with the in-place calls that it is chained to on both sides."""
    statement = code.statement(call)
    chain = [n for n in ast.walk(statement) if isinstance(n, ast.Call) and (_inplace_method(n) or _inplace_flag(n))]
    chain = [n for n in chain if _linked(code, n, call)]
    if not chain:
        return [], []
    edits = [_strip(code, n) for n in chain]
    whole = max(chain, key=lambda n: code.span(n)[1] - code.span(n)[0])
    receiver = _receiver(chain)
    if isinstance(statement, ast.Expr) and statement.value is whole:
        target = dotted(receiver) if receiver is not None else None
        if target is None:
            return [], []
        start, _ = code.span(statement)
        edits.append(Edit(start, start, f"{target} = "))
        title = f"{target} = {_stripped(code, whole, edits[:-1])}"
    else:
        title = _stripped(code, whole, edits)
    return edits, [title]


def _linked(code: Code, one: ast.Call, other: ast.Call) -> bool:
    return one is other or _inner(one, other) or _inner(other, one)


def _inner(inner: ast.Call, outer: ast.AST) -> bool:
    """Whether ``inner`` is what ``outer``'s method chain starts from."""
    while isinstance(outer, ast.Call) and isinstance(outer.func, ast.Attribute):
        outer = outer.func.value
        if outer is inner:
            return True
    return False


def _receiver(chain: list[ast.Call]) -> ast.expr | None:
    """The tensor that the innermost call of the chain writes into."""
    inner = min(chain, key=lambda n: (n.end_lineno or 0, n.end_col_offset or 0))
    if isinstance(inner.func, ast.Attribute) and _inplace_method(inner) and not _is_module(inner.func.value):
        return inner.func.value
    return inner.args[0] if inner.args else None


def _is_module(node: ast.expr) -> bool:
    return dotted(node) in ("torch", "F", "nn.functional", "torch.nn.functional", "functional")


def _strip(code: Code, call: ast.Call) -> Edit:
    """Takes the underscore off a method's name, or the flag out of the arguments."""
    flag = _inplace_flag(call)
    if flag is not None:
        start, end = code.span(flag)
        raw = code.cell.raw
        before = raw[:start].rstrip()
        if before.endswith(","):
            return Edit(len(before) - 1, end, "")
        return Edit(start, end, "")
    _, end = code.span(call.func)
    return Edit(end - 1, end, "")


def _stripped(code: Code, node: ast.AST, edits: list[Edit]) -> str:
    start, end = code.span(node)
    text = code.cell.raw
    for edit in sorted((e for e in edits if start <= e.start < end), key=lambda e: e.start, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
        end += len(edit.text) - (edit.end - edit.start)
    return " ".join(text[start:end].split())
