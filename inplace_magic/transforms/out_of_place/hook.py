"""A hook gives back a tensor of its own instead of writing into the one that it was handed.

def hook(grad):                def hook(grad):
    grad.mul_(0.1)                 return grad.mul(0.1)

def hook(grad):                def hook(grad):
                                   grad = grad.clone()
    grad[bad] = 0                  grad[bad] = 0
    log(grad)                      log(grad)
                                   return grad

def steer(module, x, out):     def steer(module, x, out):
    out += vector                  return out + vector

def clip(module, grads, _):    def clip(module, grads, _):
                                   grads = (grads[0].clone(), *grads[1:])
    grads[0].clamp_(-1, 1)         grads[0].clamp_(-1, 1)
                                   return grads

register_hook(lambda g: g.mul_(2))   register_hook(lambda g: g.mul(2))

Where the function gives something back already, as a Function's backward does, a clone before the write is enough.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ...message import message
from ...source.bindings import parameters
from ...source.blocks import own_statements, within
from ...source.dataflow import called_name
from ...source.editor import Code, Def, Edit, Function, dotted
from ..analysis.contents import index_of, with_item
from ..analysis.targets import Site, called_target, sites
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register
from .new_tensor import as_new_tensor

Way = tuple[str, list[Edit]]  # the title, and the edits


@register("modified", "leaf", "view_of_leaf", "multi_output_view", "no_grad_view", "overlap", "inference", "silent")
def hook(problem: Problem) -> Iterator[Proposal]:
    why = message("why_handed_gradient") if problem.family == "silent" else message("why_new_tensor")
    for depth, write in enumerate(sites(problem, depth=3)):  # a helper may write, and its caller be the hook
        function = write.code.function(write.statement)
        found: list[Way] = []
        if depth == 0 and problem.family == "silent" and _is_hook(problem, ""):
            found += _in_lambda(problem, write)
        if isinstance(function, Function) and _is_hook(problem, function.name):
            found += _in_function(problem, write, function, innermost=depth == 0)
        for title, edits in found:
            lossless = problem.family in ("modified", "silent")  # a refused write had no effect yet
            yield in_one_text(write.code, edits, title, why, "hook", lossless=lossless, meant=not lossless)


def _in_lambda(problem: Problem, write: Site) -> Iterator[Way]:
    code, call = write.code, write.node
    function = next((n for n in code.parents(call) if isinstance(n, ast.Lambda)), None)
    target = called_target(call) if isinstance(call, ast.Call) else None
    if function is None or target is None:
        return
    new = _out_of_place(problem, code, code.text(call), code.text(target))
    for root in _handed(code, target, [a.arg for a in function.args.args]):
        if new is not None:
            yield new, [code.replace(call, new)]
        copy = code.behind(root, ".clone()")
        yield copy.text, [copy]


def _in_function(problem: Problem, write: Site, function: Def, innermost: bool) -> Iterator[Way]:
    code, last = write.code, function.body[-1]
    top = within(code, function.body, write.statement)
    if write.target is None or top is None:
        return
    returns = [s for s in own_statements(code, function) if isinstance(s, ast.Return)]
    gives_nothing = all(s.value is None for s in returns)
    for root in _handed(code, write.target, parameters(function)):
        name, whole = code.text(root), code.text(root.value if isinstance(root, ast.Subscript) else root)
        own = f"{whole} = {with_item(code, root, f'{name}.clone()')}"
        if innermost and gives_nothing and write.statement is last and code.alone(last):
            new = _out_of_place(problem, code, code.text(last), name)
            if new is not None:
                line = f"return {with_item(code, root, new)}"
                yield line, [code.replace(last, line)]
        if not returns:
            edits = [code.insert_before(top, own), code.insert_after(last, f"return {whole}")]
            yield f"{own} … return {whole}", edits
        if isinstance(root, ast.Subscript):  # handed over to be looked at, as the gradients of a module's outputs are
            yield own, [code.insert_before(top, own)]


def _handed(code: Code, target: ast.expr, given: list[str]) -> list[ast.expr]:
    """What the function may have been handed that lies under a write: an item of a parameter, or the parameter."""
    first = next((n for n in ast.walk(target) if isinstance(n, ast.Name)), None)
    if first is None or first.id not in given:
        return []
    item = code.parent(first)
    read = isinstance(item, ast.Subscript) and isinstance(item.ctx, ast.Load) and index_of(item) is not None
    return [item, first] if read else [first]  # type: ignore[list-item]


def _out_of_place(problem: Problem, code: Code, text: str, name: str) -> str | None:
    """What a write into ``name`` would give out of place, as an expression."""
    new = as_new_tensor(problem, code, text)
    return new.value if new is not None and new.target == name and "\n" not in new.value else None


def _is_hook(problem: Problem, name: str) -> bool:
    """Whether autograd was seen to call the function, or its name is handed to one of torch's ``register_..._hook``."""
    if problem.family == "silent":
        return problem.clash.write is not None and problem.clash.write.handed
    calls = [call for _, call in problem.nodes(ast.Call) if re.fullmatch("register_.*hook", called_name(call))]
    return name in {(dotted(given) or "").rpartition(".")[2] for call in calls for given in call.args[:1]}
