"""``x += y`` becomes ``x = x + y``, ``x.add_(y)`` becomes ``x = x.add(y)``: a new tensor, the saved one untouched.

x = F.relu(x)                     x = F.relu(x)
x += feature                      x = x + feature
w /= total + eps                  w = w / (total + eps)
z.mul_(2)                         z = z.mul(2)
return a.mul_(gate)               return a.mul(gate)
F.relu_(h)                        h = F.relu(h)
F.dropout(h, 0.5, inplace=True)   h = F.dropout(h, 0.5)
x.zero_()                         x = torch.zeros_like(x)
p[p < eps] = eps                  p = p.masked_fill(p < eps, eps)
p[bad] = q[bad]                   p = torch.where(bad, q, p)
torch.exp(x, out=y)               y = torch.exp(x)
for t in states: t.mul_(0.9)      states = [t.mul(0.9) for t in states]
for k, t in ws.items(): t -= d    ws = {k: t - d for k, t in ws.items()}
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from ..source.editor import Code, Edit, atom, dotted
from ..source.modules import module_of
from . import Problem, Proposal, register
from .targets import (
    Site,
    bindings,
    called_target,
    is_functional,
    is_inplace_name,
    later,
    loop_of,
    meant_for_whole,
    parameters,
    reads,
    root,
    site,
    torch_name,
)

_WHY = "A new tensor is made; the one that backward needs keeps its value."
_OPERATORS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.MatMult: "@", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
_TIGHTNESS = {ast.Add: 1, ast.Sub: 1, ast.Mult: 2, ast.Div: 2, ast.FloorDiv: 2, ast.Mod: 2, ast.MatMult: 2, ast.Pow: 3}
# In-place methods whose out-of-place form has another name; {x} is the tensor, {y} the first argument.
_RENAMED = {
    "zero_": ("{torch}.zeros_like({x})", 0), "fill_": ("{torch}.full_like({x}, {y})", 1), "copy_": ("{y}.clone()", 1),
    "normal_": ("{torch}.randn_like({x})", 0), "uniform_": ("{torch}.rand_like({x})", 0),
}  # fmt: skip
_NO_TWIN = frozenset({
    "set_", "resize_", "resize_as_", "as_strided_", "requires_grad_", "random_", "bernoulli_", "exponential_",
    "geometric_", "log_normal_", "cauchy_", "apply_", "map_", "map2_", "share_memory_", "retain_grad_", "trunc_normal_",
})  # fmt: skip
_FLAG_POSITION = {
    "relu": 1, "relu6": 1, "silu": 1, "mish": 1, "selu": 1, "hardswish": 1, "hardsigmoid": 1, "leaky_relu": 2,
    "elu": 2, "celu": 2, "threshold": 3, "hardtanh": 3, "dropout": 3, "dropout1d": 3, "dropout2d": 3, "dropout3d": 3,
    "alpha_dropout": 3, "feature_alpha_dropout": 3, "rrelu": 4,
}  # fmt: skip

_CONTAINERS = (ast.List, ast.Dict, ast.ListComp, ast.DictComp)
_MAKE_CONTAINERS = frozenset({"dict", "list", "copy", "OrderedDict", "defaultdict", "fromkeys"})


@dataclass(frozen=True)
class Rewrite:
    """Edits of one cell and how the new line would read."""

    edits: tuple[Edit, ...]
    title: str


@register(
    "modified", "leaf", "view_of_leaf", "multi_output_view", "no_grad_view", "overlap", "inference", "out_grad",
    "silent", rank=10,
)  # fmt: skip
def out_of_place(problem: Problem) -> Iterator[Proposal]:
    write = next((s for spot in problem.write_stack[:1] if (s := site(problem, spot)) is not None), None)
    if write is None or problem.clash.write is None or problem.clash.write.origin == "optim":
        return
    for rank, rewrite in _rewrites(problem, write):
        yield Proposal(
            title=" ".join(rewrite.title.split()),
            why=_WHY,
            rule="out_of_place",
            texts={write.code.cell.number: write.code.apply(*rewrite.edits)},
            rank=rank,
            lossless=meant_for_whole(write),
        )


def _rewrites(problem: Problem, write: Site) -> Iterator[tuple[int | None, Rewrite]]:
    code, statement = write.code, write.statement
    torch = torch_name(problem) or "torch"
    rewrite: Rewrite | None
    if isinstance(statement, ast.AugAssign):
        rewrite = augmented(code, statement)
        # A part of a tensor is still written in place; an item of a list or dict is not.
        rank = 30 if isinstance(statement.target, ast.Subscript) else None
        if rank is not None and not _of_container(problem, write):
            return
    elif isinstance(statement, ast.Assign) and isinstance(write.target, ast.Subscript):
        rewrite, rank = _masked(code, statement, write.target, torch), None
    else:
        call = _call(write)
        rewrite, rank = (_called(code, call, torch) if call is not None else None), None
    if rewrite is None:
        return
    name = write.root.id if isinstance(write.root, ast.Name) else None
    loop = loop_of(code, statement, name) if name is not None else None
    if loop is not None and name is not None and not _outlives(code, write, name):
        inner = _comprehension(code, loop, name, statement, rewrite)
        if inner is not None:
            yield 12, inner
        return  # bound anew, the name of the loop would leave what it goes through as it was
    if rank is None and meant_for_whole(write):
        rank = 45
    returned = _from_hook(problem, write, rewrite)
    if returned is not None:
        yield 9, returned
    outside = _outside_block(code, statement, rewrite)
    if outside is not None:
        yield 9, outside
    yield rank, rewrite
    if isinstance(statement, ast.AugAssign) and (everywhere := _everywhere(code, statement)) is not None:
        yield (11 if rank is None else rank + 1), everywhere
    both = _bound_twice(code, write, rewrite)
    if both is not None:
        yield 11, both


def _call(write: Site) -> ast.Call | None:
    node = write.node.value if isinstance(write.node, (ast.Expr, ast.Assign, ast.Return)) else write.node
    if isinstance(node, ast.Call) and writes_in_place(node):
        return node
    return next((n for n in ast.walk(write.statement) if isinstance(n, ast.Call) and writes_in_place(n)), None)


def writes_in_place(call: ast.Call) -> bool:
    return _method(call) or _flag(call) is not None or _out(call) is not None


def _method(call: ast.Call) -> bool:
    """``x.add_(y)`` or ``torch.relu_(x)``, not ``nn.init.zeros_(w)`` or a function of the user's own."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr in _NO_TWIN or not is_inplace_name(call.func.attr):
        return False
    module = module_of(call.func.value)
    if module is not None:
        return hasattr(sys.modules.get(module), call.func.attr[:-1])
    return dotted(call.func.value) not in ("self", "cls")


def _flag(call: ast.Call) -> tuple[int, int] | None:
    """Where ``inplace=True`` of a functional call stands among keywords or positions: (kind, index)."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if not name or name[0].isupper():
        return None
    for i, keyword in enumerate(call.keywords):
        if keyword.arg == "inplace" and not (isinstance(keyword.value, ast.Constant) and not keyword.value.value):
            return 1, i
    index = _FLAG_POSITION.get(name)
    if index is not None and index < len(call.args):
        value = call.args[index]
        if isinstance(value, ast.Constant) and value.value is True:
            return 0, index
    return None


def _out(call: ast.Call) -> ast.keyword | None:
    return next((k for k in call.keywords if k.arg == "out"), None)


def augmented(code: Code, statement: ast.AugAssign) -> Rewrite:
    target = code.text(statement.target)
    text = f"{target} = {target} {_OPERATORS[type(statement.op)]} {_operand(code, statement.value, statement.op)}"
    return Rewrite((code.replace(statement, text),), text)


def _operand(code: Code, value: ast.expr, operator: ast.operator) -> str:
    """The right side in parentheses, unless it binds more tightly than the operator and ends on its line."""
    text = code.text(value)
    tight = isinstance(value, ast.BinOp) and _TIGHTNESS.get(type(value.op), 0) > _TIGHTNESS.get(type(operator), 9)
    if tight and "\n" not in text:
        return text
    return atom(code, value) if "\n" not in text or text[:1] in "([{" else f"({text})"


# ---- masks ------------------------------------------------------------------------------------------------------


def _masked(code: Code, statement: ast.Assign, target: ast.Subscript, torch: str) -> Rewrite | None:
    """``x[mask] = v`` with one boolean mask, as masked_fill or where."""
    name, mask, value = dotted(target.value), target.slice, statement.value
    if name is None or len(statement.targets) != 1 or not _is_mask(code, mask, statement):
        return None
    where = code.text(mask)
    if isinstance(value, ast.Subscript) and code.text(value.slice) == where:
        text = f"{name} = {torch}.where({where}, {code.text(value.value)}, {name})"
    else:
        text = f"{name} = {name}.masked_fill({where}, {code.text(value)})"
    return Rewrite((code.replace(statement, text),), text)


def _is_mask(code: Code, node: ast.expr, near: ast.stmt) -> bool:
    if isinstance(node, ast.Compare):
        return not any(isinstance(o, (ast.In, ast.NotIn, ast.Is, ast.IsNot)) for o in node.ops)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitAnd, ast.BitOr, ast.BitXor)):
        return True
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return name in ("isnan", "isinf", "isfinite", "bool", "eq", "ne", "lt", "le", "gt", "ge", "logical_not")
    if isinstance(node, ast.Attribute) and node.attr == "data":
        return _is_mask(code, node.value, near)
    name = dotted(node)
    if name is None:
        return False
    bound = [b.value for b in bindings(code, name, near)[:1] if b.value is not None]
    if bound and not isinstance(bound[0], ast.Name):
        return _is_mask(code, bound[0], near) or ("mask" in name and not isinstance(bound[0], ast.Constant))
    return "mask" in name.lower()


# ---- calls ------------------------------------------------------------------------------------------------------


def _called(code: Code, call: ast.Call, torch: str) -> Rewrite | None:
    """A call in place, with the in-place calls that it is chained to on both sides."""
    statement = code.statement(call)
    chain = [n for n in ast.walk(statement) if isinstance(n, ast.Call) and writes_in_place(n)]
    chain = [n for n in chain if n is call or _inner(n, call) or _inner(call, n)]
    whole = max(chain, key=lambda n: code.span(n)[1] - code.span(n)[0])
    first = min(chain, key=lambda n: code.span(n.func)[1])
    receiver = called_target(first)
    names = [n.func.attr for n in chain if isinstance(n.func, ast.Attribute)]
    edits: list[Edit] = []
    if any(name in _RENAMED for name in names):
        renamed = _renamed(code, call, torch) if len(chain) == 1 else None
        if renamed is None:
            return None
        edits = [code.replace(call, renamed)]
    else:
        for n in chain:
            edits += _strip(code, n)
    text = code.edited(whole, edits)
    if isinstance(statement, ast.Expr):
        target = _assignable(code, receiver)
        if statement.value is not whole or target is None:
            return None
        start, _ = code.span(statement)
        return Rewrite((*edits, Edit(start, start, f"{target} = ")), f"{target} = {text}")
    return Rewrite(tuple(edits), text)


def _assignable(code: Code, node: ast.expr | None) -> str | None:
    """The receiver as the target of an assignment. A slice would be written in place again, so it is none."""
    if node is None:
        return None
    if isinstance(node, ast.Tuple):
        return ", ".join(code.text(e) for e in node.elts)
    return dotted(node)


def _renamed(code: Code, call: ast.Call, torch: str) -> str | None:
    if not isinstance(call.func, ast.Attribute) or call.keywords or is_functional(call.func.value):
        return None
    form, arguments = _RENAMED.get(call.func.attr, ("", -1))
    if len(call.args) != arguments:
        return None
    y = atom(code, call.args[0]) if call.func.attr == "copy_" else "".join(code.text(a) for a in call.args)
    return form.format(torch=torch, x=code.text(call.func.value), y=y)


def _inner(inner: ast.Call, outer: ast.AST) -> bool:
    """Whether ``inner`` is what ``outer``'s method chain starts from."""
    while isinstance(outer, ast.Call) and isinstance(outer.func, ast.Attribute):
        outer = outer.func.value
        if outer is inner:
            return True
    return False


def _strip(code: Code, call: ast.Call) -> list[Edit]:
    """Takes the underscore off a method's name, or the flag or ``out=`` out of the arguments."""
    edits = []
    flag, out = _flag(call), _out(call)
    gone: list[ast.AST] = []
    if flag is not None and flag[0] == 1:
        gone.append(call.keywords[flag[1]])
    elif flag is not None:
        value = call.args[flag[1]]
        if flag[1] == len(call.args) - 1:
            gone.append(value)
        else:
            edits.append(code.replace(value, "False"))
    if out is not None:
        gone.append(out)
    edits += [code.without_argument(node) for node in gone]
    if _method(call):
        _, end = code.span(call.func)
        edits.append(Edit(end - 1, end, ""))
    return edits


# ---- around the statement ---------------------------------------------------------------------------------------


def _outlives(code: Code, write: Site, name: str) -> bool:
    """Whether what is written is used by its name later, or at once as a value."""
    statement = write.statement
    if not isinstance(statement, (ast.AugAssign, ast.Expr)) and not isinstance(write.target, ast.Subscript):
        return True
    body = code.block(statement)
    return bool(reads(code, name, list(body[body.index(statement) + 1 :])))


def _of_container(problem: Problem, write: Site) -> bool:
    """Whether ``x[i] += y`` may write into a list or a dict; a tensor that was made here is none."""
    made = [b.value for b in bindings(write.code, write.root_text or "", write.statement)]
    known = [isinstance(v, _CONTAINERS) or _makes_container(v) for v in made]
    return any(known) or not made if problem.family == "modified" else all(known) and bool(made)


def _makes_container(value: ast.expr | None) -> bool:
    """``dict(h)``, ``h.copy()``, ``copy.copy(h)``, ``defaultdict(list)``."""
    if not isinstance(value, ast.Call):
        return False
    name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
    return name in _MAKE_CONTAINERS


def _comprehension(code: Code, loop: ast.For, name: str, statement: ast.stmt, rewrite: Rewrite) -> Rewrite | None:
    """A loop that does nothing but write into each tensor of a list or dict: the container is made anew."""
    through = _gone_through(loop, name)
    alone = loop.body == [statement] and not loop.orelse and code.alone(loop)
    if through is None or not alone or " = " not in rewrite.title:
        return None
    value = rewrite.title.split(" = ", 1)[1]
    key, held = _key_of_item(loop, name), dotted(through)
    if isinstance(through, ast.Call) and isinstance(through.func, ast.Attribute) and through.func.attr == "items":
        held = dotted(through.func.value) if key is not None and not through.args else None
        made = f"{{{key}: {value} for {code.text(loop.target)} in {code.text(loop.iter)}}}"
    else:
        made = f"[{value} for {code.text(loop.target)} in {code.text(loop.iter)}]"
    return Rewrite((code.replace(loop, f"{held} = {made}"),), f"{held} = {made}") if held is not None else None


def _key_of_item(loop: ast.For, name: str) -> str | None:
    """``k`` where the loop binds ``k, p`` or ``(k, p), g``, and ``p`` is the name."""
    pairs = [loop.target, *(loop.target.elts if isinstance(loop.target, ast.Tuple) else [])]
    for pair in pairs:
        if isinstance(pair, ast.Tuple) and [getattr(e, "id", None) for e in pair.elts][1:] == [name]:
            return getattr(pair.elts[0], "id", None)
    return None


def _gone_through(loop: ast.For, name: str) -> ast.expr | None:
    """The list whose items the loop calls ``name``: itself, or one of those in ``zip`` and ``enumerate``."""
    target, through = loop.target, loop.iter
    if isinstance(target, ast.Name):
        return through
    called = getattr(through.func, "id", "") if isinstance(through, ast.Call) else ""
    if not isinstance(target, ast.Tuple) or not isinstance(through, ast.Call):
        return None
    if called != "zip" and _key_of_item(loop, name) is not None and called != "enumerate":
        return through
    names = [getattr(e.elts[-1] if isinstance(e, ast.Tuple) else e, "id", None) for e in target.elts]
    if called == "zip" and name in names and len(names) == len(through.args):
        return through.args[names.index(name)]
    return through.args[0] if called == "enumerate" and names[1:] == [name] and through.args else None


def _from_hook(problem: Problem, write: Site, rewrite: Rewrite) -> Rewrite | None:
    """A hook that changes what it is given and returns nothing: the new tensor is what it returns."""
    code, statement = write.code, write.statement
    function, name = code.function(statement), write.root_text
    if not isinstance(function, ast.FunctionDef) or name not in parameters(function) or " = " not in rewrite.title:
        return None
    if any(isinstance(n, (ast.Return, ast.Yield)) for n in ast.walk(function)) or not _is_hook(problem, function.name):
        return None
    last = function.body[-1]
    if last is statement:
        value = rewrite.title.split(" = ", 1)[1]
        return Rewrite((code.replace(statement, f"return {value}"),), f"return {value}")
    return Rewrite((*rewrite.edits, code.insert_after(last, f"return {name}")), f"{rewrite.title}, and return {name}")


def _is_hook(problem: Problem, name: str) -> bool:
    """Whether a function's name is handed to one of torch's ``register_..._hook``."""
    for number in problem.sources.cells:
        code = problem.code(number)
        for node in ast.walk(code.tree) if code is not None else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                method = node.func.attr
                given = (dotted(node.args[0]) or "").rpartition(".")[2]
                if method.startswith("register_") and method.endswith("hook") and given == name:
                    return True
    return False


def _everywhere(code: Code, statement: ast.AugAssign) -> Rewrite | None:
    """The same line elsewhere in the cell, as in two layers with one habit: all of them rewritten."""
    text = code.text(statement)
    alike = [n for n in ast.walk(code.tree) if isinstance(n, ast.AugAssign) and code.text(n) == text]
    if len(alike) < 2:
        return None
    edits = tuple(edit for one in alike for edit in augmented(code, one).edits)
    return Rewrite(edits, f"{augmented(code, statement).title}, in {len(alike)} places")


def _outside_block(code: Code, statement: ast.stmt, rewrite: Rewrite) -> Rewrite | None:
    """A write under no_grad that was hidden from the graph, made out of place, has to be seen by it."""
    block = code.parent(statement)
    if not isinstance(block, ast.With) or len(block.body) != 1 or len(block.items) != 1 or not code.alone(block):
        return None
    if "no_grad" not in code.text(block.items[0].context_expr) or " = " not in rewrite.title:
        return None
    if statement.lineno != statement.end_lineno:
        return None
    text = code.edited(statement, rewrite.edits)
    return Rewrite((code.replace(block, text),), rewrite.title)


def _bound_twice(code: Code, write: Site, rewrite: Rewrite) -> Rewrite | None:
    """``y = x.add_(1)`` where ``x`` is read later too: both names are bound to the new tensor."""
    statement, held = write.statement, write.target
    if not isinstance(statement, ast.Assign) or held is None or isinstance(held, ast.Subscript):
        return None
    name = dotted(root(held) or held)
    if name is None or any(code.text(t) == name for t in statement.targets) or code.text(held) != name:
        return None
    if not reads(code, name, later(code, statement)) or not isinstance(statement.value, ast.Call):
        return None
    start, _ = code.span(statement.value)
    return Rewrite((*rewrite.edits, Edit(start, start, f"{name} = ")), f"{name} = {rewrite.title}")
