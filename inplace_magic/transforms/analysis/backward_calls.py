"""Edits of a backward's arguments: ``retain_graph``, ``create_graph``, ``inputs``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ...source.blocks import own_statements, scope
from ...source.dataflow import called_name, calls, calls_named, handed_on, is_call, keyword_named, root_of
from ...source.editor import Code, Edit, dotted
from ...source.names import own_names
from ..problem import Frame, Problem
from ..proposal import Change


def freeing(changes: Sequence[Change], backwards: Iterable[Frame]) -> Iterator[tuple[Change, ...]]:
    """The changes with ``retain_graph=True`` taken out of the backwards, and as they stand."""
    free = [
        (frame.code, frame.code.without_argument(keyword))
        for frame in backwards
        if not hasattr(frame.statement, "body")
        for call in calls(frame.statement)
        if (keyword := keyword_named(call, "retain_graph")) is not None and _is_true(keyword.value)
    ]
    for extra in (free, []):
        yield (*changes, *extra)


def loss_of(statement: ast.stmt) -> ast.expr | None:
    """The loss of a statement that is nothing but ``loss.backward()``; None for any other."""
    if not is_call(statement, "backward"):
        return None
    call: ast.Call = statement.value  # type: ignore[attr-defined]
    loss = root_of(call)
    alone = call.args in ([], [loss]) and all(k.arg == "retain_graph" for k in call.keywords)
    return loss if alone else None


def taken(torch: str, loss: str, params: str) -> str:
    """A loss's gradients, taken ahead of the steps: others still go back through its graph, and may not reach all of these."""
    return f"{torch}.autograd.grad({loss}, {params}, retain_graph=True, allow_unused=True)"


def taken_in_short(torch: str, loss: str) -> str:
    return f"{torch}.autograd.grad({loss}, …)"


def with_retain(code: Code, call: ast.Call) -> Edit | None:
    """``retain_graph=True`` put into a call of backward; None where it is there already."""
    if (given := keyword_named(call, "retain_graph")) is not None:
        return None if _is_true(given.value) else code.replace(given.value, "True")
    path = dotted(call.func) or ""
    ahead = 3 if path.endswith("grad") else 2 if path.endswith("autograd.backward") else 1  # positions before it
    return code.add_argument(call, "retain_graph=True") if len(call.args) <= ahead else None


def with_create(code: Code, call: ast.Call) -> Edit | None:
    """``create_graph=True`` put into a call of ``autograd.grad``; None where the graph is asked to be created or kept."""
    given = {k.arg for k in call.keywords}
    if not (dotted(call.func) or "").endswith("grad") or len(call.args) > 3 or given & {"create_graph", "retain_graph"}:
        return None
    return code.add_argument(call, "create_graph=True")


def limited(problem: Problem, code: Code, backward: ast.stmt, step: ast.stmt) -> list[Edit]:
    """``inputs=`` for a backward: the parameters of the optimizer that steps after it; none where it is limited already."""
    calls = [c for c in calls_named(backward, "backward")[:1] if all(k.arg != "inputs" for k in c.keywords)]
    return [code.add_argument(call, f"inputs={parameters_stepped(problem, code, step)}") for call in calls]


def in_short(limit: list[Edit]) -> list[Edit]:
    """The limit as a title shows it, without all that it takes to name what an optimizer holds."""
    return [replace(one, text=re.sub(r'inputs=\[p for .*?"params"\]\]', "inputs=…", one.text)) for one in limit]


def parameters_stepped(problem: Problem, near: Code, *steps: ast.stmt) -> str:
    """``list(net.parameters())`` where the notebook makes the optimizer that steps from just that; else what it holds. Of
    several ``[*net.parameters(), *head.parameters()]``.
    """
    texts = [_stepped(problem, near, step) for step in steps]
    if len(texts) == 1:
        return texts[0]
    if all(text.startswith("list(") for text in texts):
        return f"[{', '.join('*' + text[len('list(') : -1] for text in texts)}]"
    owners = ", ".join(near.text(step.value.func.value) for step in steps)  # type: ignore[attr-defined]
    return f'[p for opt in ({owners}) for group in opt.param_groups for p in group["params"]]'


def _stepped(problem: Problem, near: Code, step: ast.stmt) -> str:
    """The parameters of one optimizer."""
    owner = near.text(step.value.func.value)  # type: ignore[attr-defined]
    whole, _, attribute = owner.rpartition(".")
    held = f'[p for group in {owner}.param_groups for p in group["params"]]'
    if any(calls_named(code.tree, "add_param_group") for code in problem.codes()):
        return held
    made, own = _optimizers(problem, owner), _optimizers(problem, f"self.{attribute}") if whole else []
    for code, node, given in made[:1]:
        if called_name(given) == "parameters" and (seen := _seen_from(code, node, given, near, step)) is not None:
            return f"list({seen})"
    if own and all(code.text(given) == "self.parameters()" for code, _, given in own):
        return f"list({whole}.parameters())"  # each module of the notebook that has such an optimizer holds its own
    return held


def _optimizers(problem: Problem, path: str) -> list[tuple[Code, ast.Assign, ast.expr]]:
    """Where a path is given something made, and what that was made from."""
    return [
        (code, node, given)
        for code, node in problem.nodes(ast.Assign)
        for target, value in handed_on(node)
        if isinstance(value, ast.Call) and code.text(target) == path
        for given in [*value.args[:1], *(k.value for k in value.keywords if k.arg == "params")]
    ]


def _seen_from(code: Code, made: ast.stmt, given: ast.expr, near: Code, step: ast.stmt) -> str | None:
    """The text of what an optimizer was given, as it is written where it steps: ``self.net.parameters()`` where the
    constructor, which was handed ``net``, keeps it so. None where it has no name there.
    """
    own, name = code.function(made), code.text(given).partition(".")[0]
    if own is None or own in near.parents(step):
        return code.text(given)
    if name not in own_names(own) or name == "self":
        return code.text(given)
    kept = (
        code.text(target)
        for s in own_statements(code, own)
        for target, value in handed_on(s)
        if isinstance(target, ast.Attribute) and isinstance(value, ast.Name) and value.id == name
    )
    path = next(kept, None)
    return None if path is None else path + code.text(given)[len(name) :]


def asked_by_call(frame: Frame) -> set[str]:
    """What a call in the frame's code asks a gradient of: ``grad(loss, x)``, ``loss.backward(inputs=[x])``."""
    top = scope(frame.code, frame.statement)
    given = [k.value for call in calls_named(top, "grad", "backward") for k in call.keywords if k.arg == "inputs"]
    given += [call.args[1] for call in calls_named(top, "grad") if len(call.args) > 1]
    items = [e for one in given for e in (one.elts if isinstance(one, (ast.Tuple, ast.List)) else [one])]
    return {ast.unparse(one) for one in items}


def asked_for_gradients(frame: Frame) -> set[str]:
    """What the frame's code asks a gradient of, by a call or as ``x.grad``: it has to require one however it is made."""
    top = scope(frame.code, frame.statement)
    read = (n.value for n in ast.walk(top) if isinstance(n, ast.Attribute) and n.attr == "grad")
    return asked_by_call(frame) | {ast.unparse(one) for one in read}


def asks_for_gradients(problem: Problem, elsewhere: bool = False) -> bool:
    """Whether ``autograd.grad`` is called: maybe for what is made of the values to be cut off.

    ``elsewhere``: in a text that is not known, so that nobody can read what it asks a gradient of.
    """
    asked = [one.backward.stack for one in problem.evidence.passes if one.backward.asked]
    return any(not elsewhere or problem.frame(stack[0]) is None for stack in asked if stack)


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True
