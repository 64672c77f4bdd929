"""The inner step of a meta-learner is written into a copy of the model, to which the outer loss goes back, and no farther.

fast = copy.deepcopy(model)                weights = dict(model.named_parameters())
loss = f(fast(x))                          loss = f(torch.func.functional_call(model, weights, (x,)))
grads = grad(loss, fast.parameters())      grads = grad(loss, weights.values())
for p, g in zip(fast.parameters(),
                grads):                    weights = {name: p - lr * g
    p.data -= lr * g                                  for (name, p), g in zip(weights.items(), grads)}
return fast                                return lambda *args, **kwargs: torch.func.functional_call(
                                               model, weights, args, kwargs)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ...message import message
from ...source.bindings import gone_through, reads
from ...source.blocks import loops
from ...source.dataflow import called_name, calls_named, is_called
from ...source.editor import Code, dotted
from ...source.names import stores
from ..analysis.targets import torch_name
from ..out_of_place.new_tensor import as_new_tensor
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register
from .inner_step import by_name, name_of_parameter, nodes_beside, owner_of, readers, with_block, without_data

_WHY = message("why_weights_of_model")


@register("silent")
def copied_model(problem: Problem) -> Iterator[Proposal]:
    torch = torch_name(problem)
    for frame in problem.lost[-1:]:
        match frame.statement:
            case ast.Assign([ast.Name(copied)], ast.Call(args=[original]) as call) if called_name(call) == "deepcopy":
                model = dotted(original)
                if torch is not None and model is not None:
                    yield from _on_weights(problem, frame.code, frame.statement, copied, model, torch)


def _on_weights(
    problem: Problem, code: Code, copying: ast.stmt, copied: str, model: str, torch: str
) -> Iterator[Proposal]:
    behind = code.following(copying)
    inner = [loop for s in behind for loop in ast.walk(s) if isinstance(loop, ast.For) and _item(loop, copied)]
    if len(inner) != 1 or not any(calls_named(s, "grad") for s in behind) or any(stores(s, copied) for s in behind):
        return
    weights = problem.unused("weights", code, copying)
    stepped = with_block(code, inner[0])
    beside = nodes_beside(behind, stepped)
    value = _stepped(problem, code, inner[0], copied, weights)
    others = _others(code, behind, beside, copied)
    if value is None or others is None or (others and loops(code, copying)):
        return  # a function that is kept by each of several iterations would have the weights of the last
    edits = [code.replace(copying, f"{weights} = dict({model}.named_parameters())")]
    edits += [code.replace(stepped, f"{weights} = {value}"), *readers(code, beside, copied, weights, torch, model)]
    for read in others:
        text = f"lambda *args, **kwargs: {torch}.func.functional_call({model}, {weights}, args, kwargs)"
        edits.append(code.replace(read, text if isinstance(code.parent(read), ast.Return) else f"({text})"))
    title = message("title_fast_weights", call=f"{torch}.func.functional_call({model}, ...)")
    yield in_one_text(code, edits, title, _WHY, "fast_weights")


def _item(loop: ast.For, copied: str) -> str | None:
    """What a loop calls a parameter of the copy, with each of which it does one thing."""
    if len(loop.body) != 1:
        return None
    names = [n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)]
    return next((name for name in names if owner_of(gone_through(loop, name)) == copied), None)


def _stepped(problem: Problem, code: Code, loop: ast.For, copied: str, weights: str) -> str | None:
    """The dict of the stepped weights; None where the loop does something else."""
    item = _item(loop, copied)
    given = gone_through(loop, item) if item is not None else None
    if item is None or given is None:
        return None
    match loop.body[0]:
        case ast.Assign([ast.Attribute(ast.Name(written), "data")], value=step) if written == item:
            text = code.edited(step, without_data(code, step, item))
        case statement:
            new = as_new_tensor(problem, code, code.edited(statement, without_data(code, statement, item)))
            if new is None or new.target != item:
                return None
            text = new.value
    through = code.replace(given, f"{weights}.items()")
    return by_name(problem, code, loop, [through], item, name_of_parameter(loop, item, given), text)


def _others(code: Code, behind: Sequence[ast.AST], beside: Sequence[ast.AST], copied: str) -> list[ast.expr] | None:
    """Where the copy is handed on as a whole; None where it is asked for more than a call and its parameters, or these get a name:
    a list of them would be that of the first weights.
    """
    found: list[ast.expr] = []
    kept = {id(n) for n in beside}
    for read in (n for n in reads(code, copied, [*behind]) if id(n) in kept and not is_called(code, n)):
        above = code.parent(read)
        if not isinstance(above, ast.Attribute):
            found.append(read)
        elif owner_of(code.parent(above)) != copied or _is_named(code, above):
            return None
    return found


def _is_named(code: Code, node: ast.AST) -> bool:
    """Whether an assignment gives a name to what a node is, but for the gradients that are asked of it."""
    asked = any(called_name(above) == "grad" for above in code.parents(node))
    return isinstance(code.statement(node), (ast.Assign, ast.AnnAssign)) and not asked
