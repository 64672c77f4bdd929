"""A helper that makes a meta-learner's inner step gives the stepped weights to its caller, which hands them back for the next.

loss = f(net(x))                          loss = f(net(x))
inner_step(net, loss)                     fast = inner_step(net, loss)
return f(net(y))                          return f(torch.func.functional_call(net, fast, (y,)))

def inner_step(net, loss):                def inner_step(net, loss):
    grads = grad(loss, net.parameters(),      grads = grad(loss, net.parameters(),
                 create_graph=True)                        create_graph=True)
    for p, g in zip(net.parameters(),
                    grads):                   return {name: p.sub(lr * g)
        p.sub_(lr * g)                                for (name, p), g in zip(net.named_parameters(), grads)}

for _ in range(steps):                    fast = dict(net.named_parameters())
    inner_step(net, f(net(x)))            for _ in range(steps):
                                              fast = inner_step(net, f(functional_call(net, fast, (x,))), fast=fast)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.bindings import parameters
from ...source.blocks import scope
from ...source.dataflow import called_name, calls_named
from ...source.editor import Code, Edit, dotted
from ..analysis.targets import Site, outside, sites, torch_name
from ..grad_mode.inference_mode import modes
from ..grad_mode.no_grad import creates_graph
from ..problem import Problem
from ..proposal import Change, Proposal
from ..registry import register
from .fast_weights import is_trained
from .inner_step import Step, Task, calls_one_of, copied, readers, step_of_model, task_of, with_block

_WHY = message("why_fast_weights")


@register("modified", "leaf", "silent")
def fast_weights_handed_on(problem: Problem) -> Iterator[Proposal]:
    write, caller = (*sites(problem, depth=2), None, None)[:2]
    torch = torch_name(problem)
    if write is None or caller is None or torch is None or not isinstance(write.root, ast.Name):
        return
    code, call, step = write.code, caller.expression, step_of_model(problem, write)
    function = code.function(write.statement)
    if step is None or step.listed is not None or not isinstance(call, ast.Call) or not is_trained(problem):
        return
    if not isinstance(function, ast.FunctionDef) or _called_elsewhere(problem, function):
        return
    asked = [one for top in (function, scope(caller.code, caller.statement)) for one in calls_named(top, "grad")]
    if not asked:
        return
    own = step.model.partition(".")[0] in parameters(function)
    model = outside(write, caller, step.model) if own else step.model
    names = _names(caller.statement, call, model) if model is not None else None
    if model is None or names is None:
        return
    task = task_of(caller.code, caller.statement, lambda nodes: calls_one_of(nodes, names))
    if task is None:
        return
    fast = problem.unused(problem.unused("fast", code, step.loop), caller.code, caller.statement)
    helper = _helper(code, function, step, fast if task.loop is not None else None, torch)
    if helper:
        calling = _caller(caller, call, task, names, model, fast, torch)
        changes: tuple[Change, ...] = (*((code, one) for one in helper), *((caller.code, one) for one in calling))
        title = f"{fast} = {called_name(call)}(...)"
        yield Proposal(title, _WHY, "fast_weights", changes, meant=creates_graph(asked))


def _called_elsewhere(problem: Problem, function: ast.FunctionDef) -> bool:
    """Whether there is more than one call that can be one of the helper's: others call it for what it does to the model."""
    given = function.args
    least = len(given.args) - len(given.defaults) - (parameters(function)[:1] == ["self"])
    codes = [one for number in problem.sources.cells if (one := problem.code(number)) is not None]
    calls = [call for code in codes for call in calls_named(code.tree, function.name)]
    return sum(len(call.args) + len(call.keywords) >= least for call in calls) > 1


def _helper(code: Code, function: ast.FunctionDef, step: Step, fast: str | None, torch: str) -> list[Edit]:
    """It gives the stepped weights back, where it gave nothing, or the model; and goes on from those it is handed."""
    last = with_block(code, step.loop)
    rest, given = code.following(last), function.args
    plain = all(isinstance(s, ast.Return) and (s.value is None or dotted(s.value) == step.model) for s in rest)
    if last not in function.body or not plain or not given.args or given.kwarg is not None:
        return []
    edits = [code.replace(last, f"return {step.weights(code, fast)}"), *(code.delete(s) for s in rest)]
    edits += [code.without_decorator(one) for one in modes(function, "no_grad") if one in function.decorator_list]
    if fast is None:
        return edits
    own = (*given.args, *given.kwonlyargs, *given.defaults, *filter(None, given.kw_defaults))
    behind = max(code.span(one)[1] for one in own)
    named = "" if given.kwonlyargs or given.vararg is not None else "*, "
    ahead = [n for s in function.body if s is not last and s not in rest for n in ast.walk(s)]
    edits.append(Edit(behind, behind, f", {named}{fast}"))
    return edits + readers(code, ahead, {step.model}, step.model, fast, torch)


def _caller(frame: Site, call: ast.Call, task: Task, names: set[str], model: str, fast: str, torch: str) -> list[Edit]:
    """What reads the model around the call, and behind it, reads the stepped weights."""
    code, statement = frame.code, frame.statement
    edits: list[Edit] = []
    handed: list[Edit] = []
    if task.loop is not None:
        edits = [code.insert_before(task.loop, copied(fast, model))]
        handed = [*readers(code, ast.walk(call), names, model, fast, torch), code.add_argument(call, f"{fast}={fast}")]
    own = {id(node) for node in ast.walk(statement)}
    others = [n for s in task.statements for n in ast.walk(s) if id(n) not in own]
    edits.append(code.replace(statement, f"{fast} = {code.edited(call, handed)}"))
    return [*edits, *readers(code, others, names, model, fast, torch)]


def _names(statement: ast.stmt, call: ast.Call, model: str) -> set[str] | None:
    """The model's names around the call: its own, and that of the result."""
    if not isinstance(statement, ast.Expr | ast.Assign) or statement.value is not call:
        return None
    given = statement.targets if isinstance(statement, ast.Assign) else []
    names = {one.id for one in given if isinstance(one, ast.Name)}
    return {model, *names} if all(isinstance(one, ast.Name) for one in given) else None
