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

Where the function gives something back already, as a Function's backward does, a clone before the write is enough.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.bindings import own_statements, parameters
from ...source.editor import Code, Edit, Function, dotted
from ..analysis.targets import sites
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register
from .new_tensor import as_new_tensor


@register("modified", "leaf", "view_of_leaf", "multi_output_view", "no_grad_view", "overlap", "inference", "silent")
def hook(problem: Problem) -> Iterator[Proposal]:
    for depth, write in enumerate(sites(problem, depth=3)):  # a helper may write, and its caller be the hook
        code, name = write.code, write.root_text
        function = code.function(write.statement)
        if not isinstance(function, Function) or name is None or name not in parameters(function):
            continue
        body, given_back = function.body, [s for s in own_statements(code, function) if isinstance(s, ast.Return)]
        if any(s.value is not None for s in given_back) or not _is_hook(problem, function.name):
            continue
        if depth == 0 and write.statement is body[-1] and code.alone(write.statement):
            new = as_new_tensor(problem, code.text(write.statement)) or ""
            if new.startswith(f"{name} = ") and "\n" not in new:
                line = f"return {new.removeprefix(f'{name} = ')}"
                yield _proposal(problem, code, line, [code.replace(write.statement, line)])
        top = next((s for s in body if write.statement in ast.walk(s)), None)
        if top is not None:
            edits = [code.insert_before(top, f"{name} = {name}.clone()"), code.insert_after(body[-1], f"return {name}")]
            yield _proposal(problem, code, f"{name} = {name}.clone() … return {name}", edits)


def _proposal(problem: Problem, code: Code, title: str, edits: list[Edit]) -> Proposal:
    why = message("why_handed_gradient") if problem.family == "silent" else message("why_new_tensor")
    return in_one_text(code, edits, title, why, "hook", local=True, lossless=True)


def _is_hook(problem: Problem, name: str) -> bool:
    """Whether autograd was seen to call the function, or its name is handed to one of torch's ``register_..._hook``."""
    if problem.family == "silent":
        return problem.clash.write is not None and problem.clash.write.handed
    for number in problem.sources.cells:
        code = problem.code(number)
        for node in ast.walk(code.tree) if code is not None else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                method = node.func.attr
                given = (dotted(node.args[0]) or "").rpartition(".")[2]
                if method.startswith("register_") and method.endswith("hook") and given == name:
                    return True
    return False
