"""The inner step of a meta-learner is written into the model's parameters: it belongs into weights of its own.

loss = f(model(x))                        fast = dict(model.named_parameters())
                                          loss = f(torch.func.functional_call(model, fast, (x,)))
grads = grad(loss, model.parameters(),    grads = grad(loss, fast.values(),
             create_graph=True)                        create_graph=True)
for p, g in zip(model.parameters(), grads):
    p.sub_(lr * g)                        fast = {name: p.sub(lr * g) for (name, p), g in zip(fast.items(), grads)}
return f(model(y))                        return f(torch.func.functional_call(model, fast, (y,)))

g = grad(f(x, w), w, create_graph=True)   g = grad(f(x, w), w, create_graph=True)
w -= lr * g                               fast_w = w - lr * g
total += f(y, w)                          total += f(y, fast_w)

with torch.no_grad():                     fast_params = {k: params[k] - lr * g for k, g in zip(params, grads)}
    for k, g in zip(params, grads):
        params[k].sub_(lr * g)
total += f(y, params)                     total += f(y, fast_params)
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ...message import message
from ...source.bindings import bindings, gone_through, key_of_item, loop_of, reads
from ...source.blocks import loops, own_statements, scope
from ...source.dataflow import called_name, calls_named
from ...source.editor import Code, Edit, Function, Loop, dotted
from ..analysis.meetings import before_step
from ..analysis.targets import Site, is_of_leaf, torch_name, written
from ..grad_mode.no_grad import carries_graph
from ..out_of_place.new_tensor import as_new_tensor
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_fast_weights")


@register("modified", "leaf", "silent")
def fast_weights(problem: Problem) -> Iterator[Proposal]:
    write, torch = written(problem), torch_name(problem)
    if write is None or torch is None or not isinstance(write.root, ast.Name):
        return
    around = next(iter(loops(write.code, write.statement)), None)
    if carries_graph(write) and is_trained(problem):
        if write.target is write.root:
            yield from _of_a_name(problem, write, write.root.id)
        if isinstance(around, ast.For) and around.body == [write.statement]:
            yield from _of_items(problem, write, around)
    step = step_of_model(problem, write)
    if step is not None and calls_named(scope(write.code, step.loop), "grad"):  # which can be differentiated
        edits = _rewrite(problem, write, step, torch)
        title = message("title_fast_weights", call=f"{torch}.func.functional_call({step.model}, ...)")
        if edits:
            yield in_one_text(write.code, edits, title, _WHY, "fast_weights")


def is_trained(problem: Problem) -> bool:
    """Whether an optimizer steps the leaf, so that it need not go on from the inner step."""
    event, passes = problem.clash.write, problem.evidence.passes
    stepped = {leaf for one in passes for leaf in one.stepped}
    return not stepped or (event is not None and (event.stepped or event.name in stepped))


def _of_a_name(problem: Problem, write: Site, name: str) -> Iterator[Proposal]:
    """A leaf that the code names stays what it is; what is read behind the step is the stepped value."""

    def stepped(fast: str, own: list[Edit]) -> str | None:
        new = as_new_tensor(problem, write.code.edited(write.statement, own))
        return new.value if new is not None and new.target is not None else None

    yield from _of(problem, write.code, write.statement, name, stepped)


def _of_items(problem: Problem, write: Site, loop: ast.For) -> Iterator[Proposal]:
    """So do leaves that a list or dict holds, whose items the loop steps one by one."""
    code, root = write.code, write.root
    by_key = isinstance(write.target, ast.Subscript) and write.target.value is root
    given = root if by_key else gone_through(loop, root.id)  # type: ignore[union-attr]
    values = called_name(given) == "values" and isinstance(given, ast.Call)
    through = given.func.value if values else given  # type: ignore[union-attr]
    name = dotted(through) if through is not None else None
    if name is None or any(one.statement is not loop for one in bindings(code, name, loop)):
        return  # what is made here may be filled with the stepped values
    held = problem.clash.write.held if problem.clash.write is not None else ()
    if any(path != root.id and not path.startswith(f"{name}[") for path in held):  # type: ignore[union-attr]
        return  # others read the leaves by another way
    key = code.text(write.target.slice) if by_key else "name" if values else None  # type: ignore[union-attr]
    listed = key is None or (by_key and not any(path.startswith((f"{name}['", f'{name}["')) for path in held))

    def stepped(fast: str, own: list[Edit]) -> str | None:
        text = code.edited(write.statement, own).replace(f"{code.text(root)}.data", code.text(root))  # type: ignore[arg-type]
        new = as_new_tensor(problem, text, item=True)
        if new is None:
            return None
        pairs: list[Edit] = []
        if values:
            bound_to = next(n for n in ast.walk(loop.target) if isinstance(n, ast.Name) and n.id == root.id)  # type: ignore[union-attr]
            pairs = [code.replace(bound_to, f"({key}, {root.id})")]  # type: ignore[union-attr]
            own = [*own, code.replace(given.func, f"{fast if own else name}.items")]  # type: ignore[union-attr]
        going = f"for {code.edited(loop.target, pairs)} in {code.edited(loop.iter, own)}"
        return f"[{new.value} {going}]" if listed else f"{{{key}: {new.value} {going}}}"

    yield from _of(problem, code, with_block(code, loop), name, stepped)


def _of(
    problem: Problem, code: Code, statement: ast.stmt, name: str, stepped: Callable[[str, list[Edit]], str | None]
) -> Iterator[Proposal]:
    """What a statement steps in place gets a name of its own, and what is read behind it is that.

    In a loop of several steps each goes on from the last one, and so does what is read behind the loop.
    """
    fast = problem.unused(f"fast_{name.rpartition('.')[2]}", code, statement)
    loop = next(iter(loops(code, statement)), None)
    behind: list[ast.AST] = [*before_step(code.following(loop or statement))]
    several = loop is not None and bool(reads(code, name, behind))
    read = [n for n in reads(code, name, behind if loop is None else [loop, *behind]) if not is_of_leaf(code, n)]
    last = [statement, *before_step(code.following(statement))][-1]
    until = last.end_lineno if code.following(last) else None  # a step stands behind it
    read = [n for n in read if several or statement.lineno < n.lineno <= (until or n.lineno)]
    inside = {id(n) for n in ast.walk(statement)}
    own = [n for n in ast.walk(statement) if several and isinstance(n, (ast.Name, ast.Attribute)) and dotted(n) == name]
    value = stepped(fast, [code.replace(n, fast) for n in own])
    if value is None or not any(id(n) not in inside for n in read) or not code.alone(statement):
        return
    line = f"{fast} = {value}"
    edits = [code.replace(n, fast) for n in read if id(n) not in inside]
    edits += [code.insert_before(loop, f"{fast} = {name}")] if several and loop is not None else []
    edits.append(code.replace(statement, line))
    yield in_one_text(code, edits, line, _WHY, "fast_weights", meant=True)


@dataclass(frozen=True)
class Step:
    """A loop that does nothing but step the parameters of ``model``, each to ``value``, going through ``given``; ``listed``:
    the assignment that made a list of them first."""

    loop: ast.For
    item: str
    value: str
    model: str
    given: ast.expr
    listed: ast.Assign | None

    def weights(self, code: Code, fast: str) -> str:
        """``{name: p - lr * g for (name, p), g in zip(fast.items(), grads)}``"""
        key = key_of_item(self.loop, self.item)
        held = next(n for n in ast.walk(self.loop.target) if isinstance(n, ast.Name) and n.id == self.item)
        pair = [code.replace(held, f"(name, {self.item})")] if key is None else []
        through = code.edited(self.loop.iter, [code.replace(self.given, f"{fast}.items()")])
        return f"{{{key or 'name'}: {self.value} for {code.edited(self.loop.target, pair)} in {through}}}"


def step_of_model(problem: Problem, write: Site) -> Step | None:
    """The loop around a write that steps the parameters of a model."""
    code, root = write.code, write.root
    loop = loop_of(code, write.statement, root.id) if isinstance(root, ast.Name) else None
    if loop is None or not isinstance(root, ast.Name) or loop.body != [write.statement]:
        return None
    stepped = as_new_tensor(problem, code.text(write.statement).replace(f"{root.id}.data", root.id))
    given = gone_through(loop, root.id)
    made, listed = given, None
    if isinstance(given, ast.Name):
        found = bindings(code, given.id, loop)
        value = found[0].value if len(found) == 1 else None
        if not isinstance(value, ast.Call) or not isinstance(found[0].statement, ast.Assign) or len(value.args) != 1:
            return None
        made, listed = value.args[0], found[0].statement
    model = owner_of(made)
    if stepped is None or stepped.target is None or model is None or given is None:
        return None
    return Step(loop, root.id, stepped.value, model, given, listed)


def with_block(code: Code, loop: ast.For) -> ast.stmt:
    """The block that holds nothing but the loop, ``with torch.no_grad():``; else the loop."""
    block = code.parent(loop)
    return block if isinstance(block, ast.With) and block.body == [loop] else loop


def owner_of(node: ast.AST | None) -> str | None:
    """``model`` of ``model.parameters()``."""
    parameters = called_name(node) in ("parameters", "named_parameters")
    return dotted(node.func.value) if parameters and isinstance(node.func, ast.Attribute) else None  # type: ignore[union-attr]


def _rewrite(problem: Problem, write: Site, step: Step, torch: str) -> list[Edit]:
    code, loop, model, listed = write.code, step.loop, step.model, step.listed
    replaced, top = with_block(code, loop), scope(code, loop)
    first = _first_use(code, top, loop, model)
    if first is None:
        return []
    fast = problem.unused("fast", code, loop)
    copied = f"{fast} = dict({model}.named_parameters())"
    edits = [code.replace(replaced, f"{fast} = {step.weights(code, fast)}")]
    if listed is not None and listed is first:
        edits.append(code.replace(listed, copied))
    else:
        edits += [code.insert_before(first, copied), *([code.delete(listed)] if listed is not None else [])]
    known, behind = code.text(listed.targets[0]) if listed is not None else None, loop.end_lineno or 0
    if not any(isinstance(n, ast.Call) and dotted(n.func) == model and n.lineno > behind for n in ast.walk(top)):
        return []  # nobody in this function would read them
    gone = {id(n) for one in (replaced, listed) if one is not None for n in ast.walk(one)}
    left = [n for n in ast.walk(top) if id(n) not in gone and getattr(n, "lineno", 0) >= first.lineno]
    edits += [code.replace(n, f"{fast}.values()") for n in left if isinstance(n, ast.Name) and n.id == known]
    return edits + readers(code, left, {model}, model, fast, torch)


def readers(code: Code, nodes: Iterable[ast.AST], names: set[str], model: str, fast: str, torch: str) -> list[Edit]:
    """Where, of some nodes, the model is called by one of its names, or its parameters are asked for."""
    edits: list[Edit] = []
    for node in nodes:
        if owner_of(node) in names:
            edits.append(code.replace(node, f"{fast}.values()"))
        elif isinstance(node, ast.Call) and dotted(node.func) in names:
            edits += _functional_call(code, node, model, fast, torch)
    return edits


def _first_use(code: Code, top: ast.AST, loop: ast.For, model: str) -> ast.stmt | None:
    """The statement before which the weights are copied: the loop of inner steps, or the first use of the model."""
    outer = [above for above in code.parents(loop) if isinstance(above, Loop) and scope(code, above) is top]
    if outer:
        return outer[-1] if isinstance(top, Function) else outer[0]

    def uses(node: ast.AST) -> bool:
        return owner_of(node) == model or (isinstance(node, ast.Call) and dotted(node.func) == model)

    return next((s for s in own_statements(code, top) if any(map(uses, ast.walk(s)))), None)


def _functional_call(code: Code, call: ast.Call, model: str, weights: str, torch: str) -> list[Edit]:
    """``net(x, mask=m)`` as ``torch.func.functional_call(net, weights, (x,), {"mask": m})``; the arguments stay as they are."""
    (start, end), given = code.span(call), [code.span(one) for one in call.args]
    head = f"{torch}.func.functional_call({model}, {weights}, ("
    edits = [Edit(start, given[0][0], head)] if given else []
    at = given[-1][1] if given else start
    opening = f"{',' if len(given) == 1 else ''}), {{" if given else f"{head}), {{"
    for keyword, before in zip(call.keywords, itertools.chain([opening], itertools.repeat(", "))):
        first, last = code.span(keyword.value)
        name = "**" if keyword.arg is None else f'"{keyword.arg}": '
        edits.append(Edit(at, first, f"{before}{name}"))
        at = last
    closing = "})" if call.keywords else f"{'' if given else head}{',' if len(given) == 1 else ''}))"
    return [*edits, Edit(at, end, closing)]
