"""The inner step of a meta-learner is written into the model's parameters: it belongs into weights of its own.

loss = f(model(x))                        fast = dict(model.named_parameters())
                                          loss = f(torch.func.functional_call(model, fast, (x,)))
grads = grad(loss, model.parameters(),    grads = grad(loss, fast.values(),
             create_graph=True)                        create_graph=True)
for p, g in zip(model.parameters(), grads):
    p.sub_(lr * g)                        fast = {name: p - lr * g for (name, p), g in zip(fast.items(), grads)}
return f(model(y))                        return f(torch.func.functional_call(model, fast, (y,)))
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ...message import message
from ...source.editor import Code, Edit, Function, atom, dotted
from ..analysis.targets import Site, bindings, loop_of, own_statements, scope, sites, torch_name
from ..problem import Problem
from ..proposal import Proposal
from ..registry import register

_WHY = message("why_fast_weights")


@register("modified", "leaf", "silent")
def fast_weights(problem: Problem) -> Iterator[Proposal]:
    torch = torch_name(problem)
    for write in sites(problem, depth=1):
        if torch is None or not isinstance(write.root, ast.Name):
            return
        loop = loop_of(write.code, write.statement, write.root.id)
        weights = _weights(write.code, loop, write.root.id) if loop is not None else None
        if loop is None or weights is None or not _second_order(write):
            return
        edits = _rewrite(write, loop, weights, torch)
        if edits is not None:
            yield Proposal(
                title=message("title_fast_weights", call=f"{torch}.func.functional_call({weights.model}, ...)"),
                why=_WHY,
                form="fast_weights",
                local=True,
                texts={write.code.cell.number: write.code.apply(*edits)},
            )


@dataclass(frozen=True)
class _Weights:
    """Whose parameters a loop goes through: ``index`` of what is zipped; ``listed`` where they were made a list first."""

    model: str
    index: int
    listed: ast.stmt | None = None


def _weights(code: Code, loop: ast.For, name: str) -> _Weights | None:
    """``for p, g in zip(model.parameters(), grads)``; so too with ``named_parameters()``, or a list of them."""
    through = loop.iter
    if not isinstance(loop.target, ast.Tuple) or not isinstance(through, ast.Call) or len(loop.body) != 1:
        return None
    last = [e.elts[-1] if isinstance(e, ast.Tuple) else e for e in loop.target.elts]
    names = [getattr(e, "id", None) for e in last]
    if getattr(through.func, "id", "") != "zip" or name not in names or len(names) != len(through.args):
        return None
    index = names.index(name)
    given = through.args[index]
    paired = isinstance(loop.target.elts[index], ast.Tuple)
    listed = None
    if isinstance(given, ast.Name):
        found = bindings(code, given.id, loop)
        if (
            len(found) != 1
            or not isinstance(found[0].value, ast.Call)
            or not isinstance(found[0].statement, ast.Assign)
        ):
            return None
        listed = found[0].statement
        if getattr(found[0].value.func, "id", "") not in ("list", "tuple") or len(found[0].value.args) != 1:
            return None
        given = found[0].value.args[0]
    model = _parameters_of(given, "named_parameters" if paired else "parameters")
    return _Weights(model, index, listed) if model is not None else None


def _parameters_of(node: ast.AST, method: str = "parameters") -> str | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method:
        return dotted(node.func.value)
    return None


def _second_order(write: Site) -> bool:
    """Whether the gradients of the inner step are asked for in the same function."""
    above = scope(write.code, write.statement)
    calls = [n for n in ast.walk(above) if isinstance(n, ast.Call)]
    return any((dotted(c.func) or "").rpartition(".")[2] == "grad" for c in calls)


def _rewrite(write: Site, loop: ast.For, weights: _Weights, torch: str) -> list[Edit] | None:
    code, model, listed = write.code, weights.model, weights.listed
    value = _stepped(write)
    block = code.parent(loop)
    replaced: ast.stmt = loop
    if isinstance(block, ast.With) and block.body == [loop]:
        replaced = block
    top = scope(code, loop)
    first = _first_use(code, top, loop, model)
    if value is None or first is None:
        return None
    name = _free(code, top)
    target = [code.text(e) for e in loop.target.elts]  # type: ignore[attr-defined]
    through = [code.text(a) for a in loop.iter.args]  # type: ignore[attr-defined]
    i = weights.index
    key = "name" if "name" not in target else "key"
    pair = loop.target.elts[i]  # type: ignore[attr-defined]
    if isinstance(pair, ast.Tuple):
        key = code.text(pair.elts[0])
    target[i], through[i] = f"({key}, {write.root.id})", f"{name}.items()"  # type: ignore[union-attr]
    step = f"{name} = {{{key}: {value} for {', '.join(target)} in zip({', '.join(through)})}}"
    copied = f"{name} = dict({model}.named_parameters())"
    edits = [code.replace(replaced, step)]
    if listed is first:
        edits.append(code.replace(first, copied))
    else:
        edits += [code.insert_before(first, copied), *([code.delete(listed)] if listed is not None else [])]
    known = code.text(listed.targets[0]) if isinstance(listed, ast.Assign) else None
    for node in _later_nodes(code, top, first, replaced, listed):
        if (isinstance(node, ast.Name) and node.id == known) or _parameters_of(node) == model:
            edits.append(code.replace(node, f"{name}.values()"))
        elif isinstance(node, ast.Call) and dotted(node.func) == model:
            if node.keywords or not node.args:
                return None
            start, end = code.span(node)
            inner, _ = code.span(node.args[0])
            _, last = code.span(node.args[-1])
            comma = "," if len(node.args) == 1 else ""
            edits += [
                Edit(start, inner, f"{torch}.func.functional_call({model}, {name}, ("),
                Edit(last, end, f"{comma}))"),
            ]
    return edits


def _stepped(write: Site) -> str | None:
    """What a parameter is after the step: ``p - lr * g``."""
    code, statement, name = write.code, write.statement, write.root.id  # type: ignore[union-attr]
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, (ast.Sub, ast.Add)):
        sign, step = "-" if isinstance(statement.op, ast.Sub) else "+", statement.value
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if method not in ("sub_", "add_") or len(call.args) != 1:
            return None
        if call.keywords:
            return f"{name}.{method[:-1]}({', '.join(code.text(a) for a in (*call.args, *call.keywords))})"
        sign, step = "-" if method == "sub_" else "+", call.args[0]
    elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Attribute):
        return code.text(statement.value).replace(f"{name}.data", name)
    else:
        return None
    product = isinstance(step, ast.BinOp) and isinstance(step.op, (ast.Mult, ast.Div, ast.MatMult))
    return f"{name} {sign} {code.text(step) if product else atom(code, step)}"


def _first_use(code: Code, top: ast.AST, loop: ast.For, model: str) -> ast.stmt | None:
    """The statement before which the weights are copied: the loop of inner steps, or the first use of the model."""
    outer = [
        above for above in code.parents(loop) if isinstance(above, (ast.For, ast.While)) and scope(code, above) is top
    ]
    if outer:
        return outer[-1] if isinstance(top, Function) else outer[0]
    for statement in own_statements(code, top):
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and (dotted(node.func) == model or _parameters_of(node) == model):
                return statement
    return None


def _later_nodes(code: Code, top: ast.AST, first: ast.stmt, *replaced: ast.stmt | None) -> Iterator[ast.AST]:
    """What stands in the function from ``first`` on, without what is replaced."""
    gone = {id(n) for one in replaced if one is not None for n in ast.walk(one)}
    for node in ast.walk(top):
        if id(node) not in gone and getattr(node, "lineno", 0) >= first.lineno:
            yield node


def _free(code: Code, top: ast.AST) -> str:
    taken = {n.id for n in ast.walk(code.tree) if isinstance(n, ast.Name)} | {
        n.arg for n in ast.walk(top) if isinstance(n, ast.arg)
    }
    return next(n for n in ("fast", "fast_weights", "fast_weights_") if n not in taken)
