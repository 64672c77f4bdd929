"""A meta-learner's inner step, made functions deep, hands the stepped weights on to the function that reads them.

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

losses = adapt(net, x)                    losses, fast = adapt(net, x)
return f(net(y)) + sum(losses)            return f(torch.func.functional_call(net, fast, (y,))) + sum(losses)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

from ...message import message
from ...source.bindings import parameters
from ...source.blocks import loops, own_statements, scope, upwards
from ...source.dataflow import called_name, calls_named
from ...source.editor import Code, Edit, Loop, as_item, dotted
from ..analysis.targets import Site, sites, torch_name
from ..grad_mode.inference_mode import modes
from ..grad_mode.no_grad import creates_graph
from ..problem import Problem
from ..proposal import Change, Proposal
from ..registry import register
from .fast_weights import is_trained
from .inner_step import (
    Loops,
    Step,
    Task,
    called_outside,
    calls_one_of,
    copied,
    left_behind,
    nodes_beside,
    read_by_callers,
    readers,
    step_of_model,
    task_of,
    with_block,
)

_WHY = message("why_fast_weights")
_DEPTH = 4


@dataclass(frozen=True)
class _Level:
    """A function on the way from the inner step to what reads the stepped weights, and its statement that makes the step.

    ``names``: what it calls the model. ``call``: the step is another function's; ``gives``: what that gives back, by
    now. ``task``: what reads the weights here; in a function that only hands them on, ``loop`` makes several steps.
    """

    site: Site
    statement: ast.stmt
    names: tuple[str, ...]
    call: ast.Call | None = None
    gives: Literal["nothing", "model", "value"] = "nothing"
    task: Task | None = None

    @property
    def code(self) -> Code:
        return self.site.code

    @property
    def function(self) -> ast.AST | None:
        return self.code.function(self.statement)

    @property
    def loop(self) -> Loops | None:
        if self.task is not None:
            return self.task.loop
        around = loops(self.code, self.statement)[-1:]
        return around[0] if around and calls_one_of(around, {*self.names}) else None

    @property
    def beside(self) -> list[ast.AST]:
        """What may read the stepped weights, but the statement itself."""
        loop = [self.loop] if self.loop is not None else []
        return nodes_beside(self.task.statements if self.task is not None else loop, self.statement)


@register("modified", "leaf", "silent")
def fast_weights_handed_on(problem: Problem) -> Iterator[Proposal]:
    torch, frames = torch_name(problem), sites(problem, depth=_DEPTH)
    step = step_of_model(problem, frames[0]) if frames else None
    levels = list(_levels(problem, step, frames)) if step is not None and step.listed is None else []
    asked = [call for one in levels for call in calls_named(scope(one.code, one.statement), "grad")]
    if torch is None or step is None or not asked or levels[-1].task is None or not is_trained(problem):
        return
    last = levels[-1]
    if read_by_callers(problem, frames[len(levels) - 1 :], last.names[0]):
        return  # who would go on with the weights of before
    fast = "fast"
    for one in levels:
        fast = problem.unused(fast, one.code, one.statement)
    changes: list[Change] = []
    handed = False  # the weights to go on from: by a loop, be it that of a caller's caller
    for one in levels[::-1]:
        given = _with_parameter(one, fast) if handed else []
        if (handed and not given) or left_behind(problem, one.code, one.beside, {*one.names}):
            return  # something would go on with the weights of before
        changes += ((one.code, edit) for edit in [*given, *_edits(one, step, fast, torch, handed)])
        handed = handed or one.loop is not None
    title = f"{_target(last, fast)} = {called_name(last.call)}(...)"
    yield Proposal(title, _WHY, "fast_weights", tuple(changes), meant=creates_graph(asked))


def _levels(problem: Problem, step: Step, frames: list[Site]) -> Iterator[_Level]:
    """From the function that steps to the first one that reads the model behind it; none where the first one does so."""
    write = frames[0]
    level = _Level(write, with_block(write.code, step.loop), (step.model,))
    if task_of(write.code, level.statement, partial(calls_one_of, names={step.model})) is not None:
        return
    yield level
    for site in frames[1:]:
        caller = _caller(problem, level, site)
        if caller is None:
            return
        yield caller
        if caller.task is not None:
            return
        level = caller


def _caller(problem: Problem, level: _Level, site: Site) -> _Level | None:
    """The level that calls another one; None where the call is a part of something, or one of several."""
    function, call, statement = level.function, site.expression, site.statement
    if (
        not isinstance(function, ast.FunctionDef)
        or not isinstance(call, ast.Call)
        or _called_elsewhere(problem, function)
    ):
        return None
    if not isinstance(statement, ast.Expr | ast.Assign) or statement.value is not call:
        return None
    model, gives = called_outside(level.site, site, level.names[0]), _given_back(level)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    aliases = [one.id for one in targets if isinstance(one, ast.Name) and gives != "value"]
    if model is None or gives is None or len(targets) > 1 or (targets and gives != "value" and not aliases):
        return None
    names = (model, *aliases)
    return _Level(
        site, statement, names, call, gives, task_of(site.code, statement, partial(calls_one_of, names={*names}))
    )


def _called_elsewhere(problem: Problem, function: ast.FunctionDef) -> bool:
    """Whether there is more than one call that can be one of the helper's: others call it for what it does to the model."""
    given = function.args
    least = len(given.args) - len(given.defaults) - (parameters(function)[:1] == ["self"])
    codes = [one for number in problem.sources.cells if (one := problem.code(number)) is not None]
    calls = [call for code in codes for call in calls_named(code.tree, function.name)]
    return sum(len(call.args) + len(call.keywords) >= least for call in calls) > 1


def _given_back(level: _Level) -> Literal["nothing", "model", "value"] | None:
    """What a function gives back so far; None where its step, or what it gives, is made in one of several ways."""
    function = level.function
    if not isinstance(function, ast.FunctionDef):
        return None
    around = [one for one in upwards(level.code, level.statement) if one is not level.statement]
    returns = [s for s in own_statements(level.code, function) if isinstance(s, ast.Return)]
    if not all(isinstance(one, (*Loop, ast.With)) for one in around) or returns not in ([], function.body[-1:]):
        return None
    value = returns[0].value if returns else None
    return "nothing" if value is None else "model" if dotted(value) == level.names[0] else "value"


def _edits(level: _Level, step: Step, fast: str, torch: str, handed: bool) -> list[Edit]:
    """What a level does with the stepped weights; ``handed``: it is given those to go on from."""
    code, model, call = level.code, level.names[0], level.call
    started = handed or level.loop is not None
    ahead = code.preceding(level.loop or level.statement) if handed else []
    nodes = [*nodes_beside(ahead, level.statement), *level.beside]
    edits = readers(code, nodes, {*level.names}, model, fast, torch)
    if level.loop is not None and not handed:
        edits.append(code.insert_before(level.loop, copied(fast, model)))
    if call is None:
        value = step.weights(code, fast if started else None)
    else:
        own = readers(code, ast.walk(call), {*level.names}, model, fast, torch) if started else []
        value = code.edited(call, [*own, *([code.add_argument(call, f"{fast}={fast}")] if started else [])])
    if level.task is not None:
        return [*edits, code.replace(level.statement, f"{_target(level, fast)} = {value}")]
    return [*edits, *_giving(level, value, fast)]


def _target(level: _Level, fast: str) -> str:
    """``fast``, ``losses, fast``"""
    if level.gives != "value":
        return fast
    target = level.statement.targets[0] if isinstance(level.statement, ast.Assign) else None
    return f"{as_item(level.code, target) if target is not None else '_'}, {fast}"


def _giving(level: _Level, value: str, fast: str) -> list[Edit]:
    """The function gives the stepped weights back: alone, where it gave nothing or the model, else beside what it gave."""
    code, statement, function = level.code, level.statement, level.function
    assert isinstance(function, ast.FunctionDef)
    edits = [code.without_decorator(one) for one in modes(function, "no_grad") if one in function.decorator_list]
    last, returned = function.body[-1], function.body[-1] if isinstance(function.body[-1], ast.Return) else None
    besides = returned.value if returned is not None and _given_back(level) == "value" else None
    rest = code.following(statement)
    if statement in function.body and rest in ([], [returned]) and besides is None and level.gives != "value":
        return [*edits, code.replace(statement, f"return {value}"), *map(code.delete, rest)]
    edits.append(code.replace(statement, f"{_target(level, fast)} = {value}"))
    if returned is None:
        return [*edits, code.insert_after(last, f"return {fast}")]
    given = f"{as_item(code, besides)}, {fast}" if besides is not None else fast
    return [*edits, code.replace(returned, f"return {given}")]


def _with_parameter(level: _Level, fast: str) -> list[Edit]:
    """One more argument, given by its name; none where the step is made in a branch, or anything may be handed over."""
    function, code = level.function, level.code
    top = level.loop or level.statement
    given = function.args if isinstance(function, ast.FunctionDef) and top in function.body else None
    if given is None or not given.args or given.kwarg is not None:
        return []
    own = (*given.args, *filter(None, [given.vararg, *given.kw_defaults]), *given.kwonlyargs, *given.defaults)
    behind = max(code.span(one)[1] for one in own)
    return [Edit(behind, behind, f", {'' if given.kwonlyargs or given.vararg is not None else '*, '}{fast}")]
