"""The inner step of a meta-learner is written into the model's parameters: it belongs into weights of its own.

loss = f(model(x))                        loss = f(model(x))
grads = grad(loss, model.parameters(),    grads = grad(loss, model.parameters(),
             create_graph=True)                        create_graph=True)
for p, g in zip(model.parameters(),
                grads):                   fast = {name: p.sub(lr * g)
    p.sub_(lr * g)                                for (name, p), g in zip(model.named_parameters(), grads)}
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
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ...message import message
from ...source.bindings import bindings, gone_through, reads
from ...source.blocks import loops, scope
from ...source.dataflow import called_name, calls, calls_named
from ...source.editor import Code, Edit, dotted
from ..analysis.targets import Site, is_of_leaf, sites, torch_name, written
from ..grad_mode.no_grad import carries_graph
from ..out_of_place.new_tensor import as_new_tensor
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register
from .inner_step import (
    Step,
    calls_model,
    header,
    left_behind,
    nodes_beside,
    read_by_callers,
    read_inside,
    readers,
    step_of_model,
    task_of,
    with_block,
)

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
        yield from _of_model(problem, write, step, torch)


def is_trained(problem: Problem) -> bool:
    """Whether an optimizer steps the leaf, so that it need not go on from the inner step."""
    event, passes = problem.clash.write, problem.evidence.passes
    stepped = {leaf for one in passes for leaf in one.stepped}
    return not stepped or (event is not None and (event.stepped or event.name in stepped))


def _of_a_name(problem: Problem, write: Site, name: str) -> Iterator[Proposal]:
    """A leaf that the code names stays what it is; what is read behind the step is the stepped value."""

    def stepped(fast: str, own: list[Edit]) -> str | None:
        new = as_new_tensor(problem, write.code, write.code.edited(write.statement, own))
        return new.value if new is not None and new.target is not None else None

    yield from _of(problem, write.code, write.statement, name, stepped)


def _of_items(problem: Problem, write: Site, loop: ast.For) -> Iterator[Proposal]:
    """So do leaves that a list or dict holds, whose items the loop steps one by one."""
    code, root = write.code, write.root
    by_key = isinstance(write.target, ast.Subscript)
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
        new = as_new_tensor(problem, code, text, item=True)
        if new is None:
            return None
        if values:
            own = [*own, code.replace(given.func, f"{fast if own else name}.items")]  # type: ignore[union-attr]
        head = header(code, loop, own, root.id if values else None)  # type: ignore[union-attr]
        return f"[{new.value} {head}]" if listed else f"{{{key}: {new.value} {head}}}"

    yield from _of(problem, code, with_block(code, loop), name, stepped)


def _of(
    problem: Problem, code: Code, statement: ast.stmt, name: str, stepped: Callable[[str, list[Edit]], str | None]
) -> Iterator[Proposal]:
    """What a statement steps in place gets a name of its own, and what is read behind it is that."""

    def read(nodes: Sequence[ast.AST]) -> list[ast.expr]:
        return [n for n in reads(code, name, [*nodes]) if not is_of_leaf(code, n)]

    task = task_of(code, statement, lambda nodes: bool(read(nodes)))
    if task is None:
        return
    around, statements = task
    called = [call for s in statements for call in calls(s)]
    if any(read_inside(problem, call, name) and not read([call]) for call in called):
        return  # a function that reads the leaf by its own name would go on with the one of before
    fast = problem.unused(f"fast_{name.rpartition('.')[2]}", code, statement)
    own = [n for n in ast.walk(statement) if dotted(n) == name]
    value = stepped(fast, [code.replace(n, fast) for n in own if around is not None])
    if value is None:
        return
    line, beside = f"{fast} = {value}", {id(n) for n in nodes_beside(statements, statement)}
    edits = [code.replace(n, fast) for n in read(statements) if id(n) in beside]
    edits += [code.insert_before(around, f"{fast} = {name}")] if around is not None else []
    yield in_one_text(code, [*edits, code.replace(statement, line)], line, _WHY, "fast_weights", meant=True)


def _of_model(problem: Problem, write: Site, step: Step, torch: str) -> Iterator[Proposal]:
    """What reads the model behind the step reads the stepped weights."""
    code, model, listed = write.code, step.model, step.listed
    stepped = with_block(code, step.loop)
    task = task_of(code, stepped, partial(calls_model, model=model))
    if task is None:
        return
    around, left = task[0], nodes_beside(task[1], stepped)
    if left_behind(problem, code, left, model) or read_by_callers(problem, sites(problem), model):
        return  # the rest would go on with the weights of before
    fast = problem.unused("fast", code, step.loop)
    edits = [code.replace(stepped, f"{fast} = {step.weights(code, fast if around is not None else None)}")]
    if around is not None:
        edits.append(code.insert_before(around, f"{fast} = dict({model}.named_parameters())"))
    known = code.text(listed.targets[0]) if listed is not None and around is not None else None
    edits += [code.replace(n, f"{fast}.values()") for n in left if isinstance(n, ast.Name) and n.id == known]
    edits += readers(code, left, model, fast, torch)
    title = message("title_fast_weights", call=f"{torch}.func.functional_call({model}, ...)")
    meant = carries_graph(write) and is_trained(problem)
    yield in_one_text(code, edits, title, _WHY, "fast_weights", meant=meant)
