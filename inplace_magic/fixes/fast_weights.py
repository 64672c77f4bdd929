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

from ..source.editor import Code, Edit, Function, atom, dotted
from . import Problem, Proposal, register
from .targets import Site, loop_of, own_statements, scope, sites, torch_name

_WHY = "The model keeps its parameters, and the meta-gradient goes through the inner step."


@register("modified", "leaf", "silent", rank=3)
def fast_weights(problem: Problem) -> Iterator[Proposal]:
    torch = torch_name(problem)
    for write in sites(problem, depth=1):
        if torch is None or not isinstance(write.root, ast.Name):
            return
        loop = loop_of(write.code, write.statement, write.root.id)
        model = _model(write.code, loop, write.root.id) if loop is not None else None
        if loop is None or model is None or not _second_order(write):
            return
        edits = _rewrite(write, loop, model, torch)
        if edits is not None:
            yield Proposal(
                title=f"the inner steps on a copy, with {torch}.func.functional_call({model}, ...)",
                why=_WHY,
                rule="fast_weights",
                texts={write.code.cell.number: write.code.apply(*edits)},
            )


def _model(code: Code, loop: ast.For, name: str) -> str | None:
    """``model`` for ``for p, g in zip(model.parameters(), grads)``."""
    through = loop.iter
    if not isinstance(loop.target, ast.Tuple) or not isinstance(through, ast.Call) or len(loop.body) != 1:
        return None
    names = [getattr(e, "id", None) for e in loop.target.elts]
    if getattr(through.func, "id", "") != "zip" or name not in names or len(names) != len(through.args):
        return None
    return _parameters_of(through.args[names.index(name)])


def _parameters_of(node: ast.AST) -> str | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "parameters":
        return dotted(node.func.value)
    return None


def _second_order(write: Site) -> bool:
    """Whether the gradients of the inner step are asked for in the same function."""
    above = scope(write.code, write.statement)
    calls = [n for n in ast.walk(above) if isinstance(n, ast.Call)]
    return any((dotted(c.func) or "").rpartition(".")[2] == "grad" for c in calls)


def _rewrite(write: Site, loop: ast.For, model: str, torch: str) -> list[Edit] | None:
    code = write.code
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
    i = target.index(write.root.id)  # type: ignore[union-attr]
    key = "name" if "name" not in target else "key"
    target[i], through[i] = f"({key}, {target[i]})", f"{name}.items()"
    step = f"{name} = {{{key}: {value} for {', '.join(target)} in zip({', '.join(through)})}}"
    edits = [code.replace(replaced, step), code.insert_before(first, f"{name} = dict({model}.named_parameters())")]
    for node in _later_nodes(code, top, first, replaced):
        if _parameters_of(node) == model:
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


def _later_nodes(code: Code, top: ast.AST, first: ast.stmt, replaced: ast.stmt) -> Iterator[ast.AST]:
    """What stands in the function from ``first`` on, without what is replaced."""
    gone = {id(n) for n in ast.walk(replaced)}
    for node in ast.walk(top):
        if id(node) not in gone and getattr(node, "lineno", 0) >= first.lineno:
            yield node


def _free(code: Code, top: ast.AST) -> str:
    taken = {n.id for n in ast.walk(code.tree) if isinstance(n, ast.Name)} | {
        n.arg for n in ast.walk(top) if isinstance(n, ast.arg)
    }
    return next(n for n in ("fast", "fast_weights", "fast_weights_") if n not in taken)
