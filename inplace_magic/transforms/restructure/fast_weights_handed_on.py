"""A helper that makes a meta-learner's inner step gives the stepped weights to its caller, and is handed those to go on from.

                                          fast = dict(net.named_parameters())
loss = f(net(x))                          loss = f(torch.func.functional_call(net, fast, (x,)))
inner_step(net, loss)                     fast = inner_step(net, loss, fast=fast)
return f(net(y))                          return f(torch.func.functional_call(net, fast, (y,)))

def inner_step(net, loss):                def inner_step(net, loss, *, fast):
    grads = grad(loss, net.parameters(),      grads = grad(loss, fast.values(),
                 create_graph=True)                        create_graph=True)
    for p, g in zip(net.parameters(),         return {name: p.sub(lr * g) for (name, p), g in zip(fast.items(), grads)}
                    grads):
        p.sub_(lr * g)
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ...message import message
from ...source.bindings import parameters
from ...source.blocks import loops, scope
from ...source.dataflow import called_name, calls_named
from ...source.editor import Code, Edit, dotted
from ..analysis.meetings import before_step
from ..analysis.targets import Site, outside, sites, torch_name
from ..grad_mode.inference_mode import modes
from ..problem import Problem
from ..proposal import Change, Proposal
from ..registry import register
from .fast_weights import Step, is_trained, readers, step_of_model, with_block

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
    if not any(calls_named(one, "grad") for one in (function, scope(caller.code, caller.statement))):
        return
    own = step.model.partition(".")[0] in parameters(function)
    there = outside(write, caller, step.model) if own else step.model
    fast = problem.unused(problem.unused("fast", code, step.loop), caller.code, caller.statement)
    helper = _helper(code, function, step, fast, torch)
    calling = _caller(caller, call, there, fast, torch) if there is not None else []
    if helper and calling:
        changes: tuple[Change, ...] = (*((code, one) for one in helper), *((caller.code, one) for one in calling))
        title = f"{fast} = {called_name(call)}(..., {fast}={fast})"
        yield Proposal(title, _WHY, "fast_weights", changes, meant=True)


def _called_elsewhere(problem: Problem, function: ast.FunctionDef) -> bool:
    """Whether there is more than one call that can be one of the helper's: others call it for what it does to the model."""
    given = function.args
    least = len(given.args) - len(given.defaults) - (parameters(function)[:1] == ["self"])
    codes = [one for number in problem.sources.cells if (one := problem.code(number)) is not None]
    calls = [call for code in codes for call in calls_named(code.tree, function.name)]
    return sum(len(call.args) + len(call.keywords) >= least for call in calls) > 1


def _helper(code: Code, function: ast.FunctionDef, step: Step, fast: str, torch: str) -> list[Edit]:
    """It gives the stepped weights back, where it gave nothing, or the model."""
    last = with_block(code, step.loop)
    rest, given = code.following(last), function.args
    plain = all(isinstance(s, ast.Return) and (s.value is None or dotted(s.value) == step.model) for s in rest)
    if last not in function.body or not plain or not given.args or given.kwarg is not None:
        return []
    behind = max(
        code.span(one)[1] for one in (*given.args, *given.kwonlyargs, *given.defaults, *filter(None, given.kw_defaults))
    )
    named = "" if given.kwonlyargs or given.vararg is not None else "*, "
    edits = [Edit(behind, behind, f", {named}{fast}"), code.replace(last, f"return {step.weights(code, fast)}")]
    edits += [code.delete(s) for s in rest]
    edits += [code.without_decorator(one) for one in modes(function, "no_grad") if one in function.decorator_list]
    ahead = [n for s in function.body if s is not last and s not in rest for n in ast.walk(s)]
    return edits + readers(code, ahead, {step.model}, step.model, fast, torch)


def _caller(frame: Site, call: ast.Call, model: str, fast: str, torch: str) -> list[Edit]:
    """What stands around the call reads the stepped weights, as far as it belongs to the same task."""
    code, statement = frame.code, frame.statement
    if not isinstance(statement, ast.Expr | ast.Assign) or statement.value is not call:
        return []
    given = statement.targets if isinstance(statement, ast.Assign) else []
    if not all(isinstance(one, ast.Name) for one in given):
        return []
    names = {model, *(one.id for one in given if isinstance(one, ast.Name))}
    behind = list(before_step(code.following(statement)))
    around = next(iter(loops(code, statement)), None)
    if _reads(behind, names):
        ahead = [s for s in code.preceding(statement) if _reads([s], names)]
        region = [*code.preceding(statement)[code.block(statement).index(ahead[0]) :], *behind] if ahead else behind
    elif around is not None and _reads(behind := list(before_step(code.following(around))), names):
        region, ahead = [around, *behind], [around]
    else:
        return []
    inner = readers(code, ast.walk(call), names, model, fast, torch)
    stepped = code.edited(call, [*inner, code.add_argument(call, f"{fast}={fast}")])
    edits = [code.insert_before([*ahead, statement][0], f"{fast} = dict({model}.named_parameters())")]
    own = {id(node) for node in ast.walk(statement)}
    others = [n for s in region for n in ast.walk(s) if id(n) not in own]
    return [*edits, code.replace(statement, f"{fast} = {stepped}"), *readers(code, others, names, model, fast, torch)]


def _reads(nodes: Iterable[ast.AST], names: set[str]) -> bool:
    return any(dotted(n.func) in names for top in nodes for n in ast.walk(top) if isinstance(n, ast.Call))
