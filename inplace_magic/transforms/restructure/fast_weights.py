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

def stepped(params, grads):               def stepped(params, grads):
    with torch.no_grad():
        for k, g in zip(params, grads):       params = {k: params[k] - lr * g for k, g in zip(params, grads)}
            params[k].sub_(lr * g)
    return params                             return params
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ...message import message
from ...source.bindings import Binding, argument, bindings, defaults, gone_through, loop_of, parameters, reads
from ...source.blocks import loops, scope
from ...source.dataflow import binds, called_name, calls, calls_named
from ...source.document import is_cell
from ...source.editor import Code, Edit, atom, dotted, names_loaded
from ...source.names import own_names, renamed
from ..analysis.targets import Site, is_of_leaf, outside, root_text, sites, torch_name, written, written_by
from ..grad_mode.inference_mode import modes
from ..grad_mode.no_grad import carries_graph
from ..out_of_place.new_tensor import as_new_tensor
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register
from .inner_step import (
    by_name,
    calls_model,
    left_behind,
    name_of_parameter,
    nodes_beside,
    owner_of,
    read_inside,
    readers,
    readers_in_callers,
    task_of,
    with_block,
    without_data,
)

_WHY = message("why_fast_weights")


@register("modified", "leaf", "silent")
def fast_weights(problem: Problem) -> Iterator[Proposal]:
    write, torch = written(problem), torch_name(problem)
    if write is None or torch is None or not isinstance(write.root, ast.Name):
        return
    code, name = write.code, write.root.id
    loop = next(iter(loops(code, write.statement)), None)
    meant = carries_graph(write) and is_trained(problem)
    if meant and write.target is write.root:
        yield from _of_a_name(problem, write, name)
    if not isinstance(loop, ast.For) or loop.body != [write.statement]:
        return
    if is_trained(problem):
        yield from _of_items(problem, write, loop, name, meant)
    if loop_of(code, write.statement, name) is loop:
        for step in itertools.chain(_of_loop(problem, write, loop, name), _of_call(problem, write, loop, name)):
            for one in _of_model(problem, step, torch):  # the step can be differentiated
                yield replace(one, meant=is_trained(problem) and carries_graph(step.frames[0]))


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


def _of_items(problem: Problem, write: Site, loop: ast.For, item: str, meant: bool) -> Iterator[Proposal]:
    """So do leaves that a list or dict holds, whose items the loop steps one by one."""
    code, target = write.code, write.target
    by_key = target if isinstance(target, ast.Subscript) else None
    given = by_key.value if by_key is not None else gone_through(loop, item)
    values = given.func if isinstance(given, ast.Call) and called_name(given) == "values" else None
    name = dotted(values.value if isinstance(values, ast.Attribute) else given)
    if name is None or any(one.statement is not loop for one in bindings(code, name, loop)):
        return  # what is made here may be filled with the stepped values
    given_back = _given_back(problem, write, name)
    if not meant and not given_back:
        return
    held = write.event.held
    if any(path != item and not path.startswith(f"{name}[") for path in held):
        return  # others read the leaves by another way
    key = code.text(by_key.slice) if by_key is not None else None
    by_names = values is not None or any(path.startswith((f"{name}['", f'{name}["')) for path in held)

    def stepped(fast: str, own: list[Edit]) -> str | None:
        text = code.edited(write.statement, [*own, *without_data(code, write.statement, item)])
        new = as_new_tensor(problem, code, text, item=True)
        if new is None:
            return None
        through = [code.replace(values, f"{fast if own else name}.items")] if values is not None else []
        if by_names:
            return by_name(problem, code, loop, [*own, *through], item, key, new.value)
        return f"[{new.value} for {code.text(loop.target)} in {code.edited(loop.iter, own)}]"

    if not given_back:
        yield from _of(problem, code, with_block(code, loop), name, stepped)
    elif (value := stepped(name, [])) is not None:
        edit = code.replace(with_block(code, loop), f"{name} = {value}")
        yield in_one_text(code, [edit], f"{name} = {value}", _WHY, "fast_weights", meant=True)


def _given_back(problem: Problem, write: Site, name: str) -> bool:
    """Whether a function gives back the leaves that it was handed and has stepped, to code that goes on with what it gives:
    ``weights = stepped(weights, grads)``.
    """
    function = write.code.function(write.statement)
    if name not in parameters(function) or not isinstance(function, ast.FunctionDef):
        return False
    back = isinstance(function.body[-1], ast.Return) and dotted(function.body[-1].value) == name
    callers = [one for one in sites(problem)[1:2] if isinstance(one.statement, ast.Assign)]
    return back and any(outside(write, one, name) in binds(one.statement) and carries_graph(one) for one in callers)


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
    others = {n for s in statements for n in ast.walk(s) if isinstance(n, ast.stmt)} - {*ast.walk(statement)}
    if any(root_text(code, into) == name for other in others for into in written_by(other)):
        return  # a second step of the same
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


@dataclass(frozen=True)
class _Step:
    """A statement that steps the parameters of a model, one by one: the loop itself, or a call of the function that is the loop.

    ``code``, ``statement``, ``through``: the statement, and what it goes through, in the code that has the model; ``frames``
    from there outwards. ``write`` into an ``item`` is the loop's, which calls what it goes through ``given``; ``names``: the
    edits that give the loop's other names their texts there.
    """

    code: Code
    statement: ast.stmt
    frames: Sequence[Site]
    through: ast.expr
    write: Site
    loop: ast.For
    item: str
    given: ast.expr
    names: Sequence[Edit] = ()

    def weights(self, problem: Problem, through: str, key: str | None) -> str | None:
        """The dict of the stepped weights, by what the loop is to go through: ``model.named_parameters()``."""
        code, statement = self.write.code, self.write.statement
        edits = [*self.names, *without_data(code, statement, self.item)]
        new = as_new_tensor(problem, code, code.edited(statement, edits))
        if new is None or new.target is None:
            return None
        head = [*self.names, code.replace(self.given, through)]
        return by_name(problem, code, self.loop, head, self.item, key, new.value)


def _of_loop(problem: Problem, write: Site, loop: ast.For, item: str) -> Iterator[_Step]:
    code, given = write.code, gone_through(loop, item)
    if given is not None and calls_named(scope(code, loop), "grad"):
        yield _Step(code, with_block(code, loop), sites(problem), given, write, loop, item, given)


def _of_call(problem: Problem, write: Site, loop: ast.For, item: str) -> Iterator[_Step]:
    """The step of a function that does nothing else, in the code that calls it, by the names there."""
    function, given = write.code.function(loop), gone_through(loop, item)
    caller = next(iter(sites(problem)[1:]), None)
    if caller is None or not isinstance(function, ast.FunctionDef) or not isinstance(given, ast.Name):
        return
    through = argument(function, given.id, caller.expression)
    texts = _texts_at(caller, function, write.code)
    cells = all(is_cell(one.cell.number) for one in (write.code, caller.code))
    if through is None or texts is None or not (cells or write.code is caller.code):
        return  # another file has other names
    if not _is_the_step(write.code, function, loop) or not _may_stand_there(caller, loop, function, given.id):
        return
    names = renamed(write.code, [loop], {name: text for name, text in texts.items() if name != given.id})
    yield _Step(caller.code, caller.statement, sites(problem)[1:], through, write, loop, item, given, names)


def _texts_at(caller: Site, function: ast.FunctionDef, code: Code) -> dict[str, str] | None:
    """What each of a function's parameters is in the code that calls it; None where that is not known."""
    found: dict[str, str] = {}
    for name in parameters(function):
        value, default = argument(function, name, caller.expression), defaults(function).get(name)
        if value is not None:
            found[name] = atom(caller.code, value)
        elif isinstance(default, ast.Constant):
            found[name] = code.text(default)
        else:
            return None
    return found


def _is_the_step(code: Code, function: ast.FunctionDef, loop: ast.For) -> bool:
    """Whether a function is nothing but the loop, without a graph or with one."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    switched_off = [*modes(function, "no_grad")]
    return body == [with_block(code, loop)] and len(function.decorator_list) == len(switched_off)


def _may_stand_there(caller: Site, loop: ast.For, function: ast.FunctionDef, stepped: str) -> bool:
    """Whether a loop's body, in the code that calls its function, would read what it reads, and each argument once."""
    call = caller.expression
    bound = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
    free = names_loaded([loop]) - bound - {*parameters(function)}
    around = caller.code.function(caller.statement)
    known = own_names(around) if around is not None else frozenset()
    inner = {*parameters(function)} & names_loaded(loop.body) - {stepped}
    computed = [made for name in inner if (one := argument(function, name, call)) is not None for made in calls(one)]
    alone = isinstance(caller.statement, ast.Expr) and caller.statement.value is call
    return alone and not computed and not free & known and not bound & names_loaded([call])


def _of_model(problem: Problem, step: _Step, torch: str) -> Iterator[Proposal]:
    """What reads the model, whose parameters are stepped, reads the stepped weights behind it: under a name, or as an attribute
    of the object that keeps the model, where callers read it.
    """
    code, stepped, made = step.code, step.statement, step.through
    listed: ast.Assign | None = None
    match bindings(code, made.id, stepped) if isinstance(made, ast.Name) else []:
        case [Binding(ast.Assign() as listed, ast.Call(args=[made]))]:
            pass
        case _ if isinstance(made, ast.Call) and called_name(made) in ("list", "tuple") and made.args:
            made = made.args[0]
    model = owner_of(made)
    if model is None:
        return
    fast = problem.unused("fast", code, stepped)
    task = task_of(code, stepped, partial(calls_model, model=model))
    outer = readers_in_callers(problem, step.frames, model, fast, torch)
    if outer is None and model.startswith("self.") and not any(n.attr == fast for _, n in problem.nodes(ast.Attribute)):
        fast = f"self.{fast}"
        outer = readers_in_callers(problem, step.frames, model, fast, torch)
    if task is None and outer:
        several = next((one for one in loops(code, stepped) if calls_model([one], model)), None)
        task = (several, [several] if several is not None else [])
    if outer is None or task is None or left_behind(problem, code, nodes_beside(task[1], stepped), model):
        return  # the rest would go on with the weights of before
    around, left = task[0], nodes_beside(task[1], stepped)
    if around is not None and calls_named(stepped, "grad"):
        return  # of the weights of before
    key = name_of_parameter(step.loop, step.item, made)
    weights = step.weights(problem, f"{model}.named_parameters()" if around is None else f"{fast}.items()", key)
    if weights is None:
        return
    edits = [code.replace(stepped, f"{fast} = {weights}")]
    if around is not None:
        edits.append(code.insert_before(around, f"{fast} = dict({model}.named_parameters())"))
    known = code.text(listed.targets[0]) if listed is not None and around is not None else None
    edits += [code.replace(n, f"{fast}.values()") for n in left if isinstance(n, ast.Name) and n.id == known]
    edits += readers(code, left, model, fast, torch)
    title = message("title_fast_weights", call=f"{torch}.func.functional_call({model}, ...)")
    yield Proposal(title, _WHY, "fast_weights", (*((code, edit) for edit in edits), *outer))
