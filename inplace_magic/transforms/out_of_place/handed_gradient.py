"""A hook gives back a gradient of its own instead of writing into the one that it was handed.

def hook(grad):                def hook(grad):
    grad.mul_(0.1)                 return grad.mul(0.1)

def hook(grad):                def hook(grad):
                                   grad = grad.clone()
    grad[bad] = 0                  grad[bad] = 0
    log(grad)                      log(grad)
                                   return grad

Where the function gives something back already, as a Function's backward does, a clone before the write is enough.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.bindings import own_statements, parameters
from ...source.editor import Code, Function
from ..analysis.targets import sites
from ..problem import Problem
from ..proposal import Proposal
from ..registry import register
from .new_tensor import as_new_tensor

_WHY = message("why_handed_gradient")


@register("silent")
def handed_gradient(problem: Problem) -> Iterator[Proposal]:
    if problem.clash.write is None or not problem.clash.write.handed:
        return
    for depth, write in enumerate(sites(problem, depth=3)):  # a helper may write, and its caller be the hook
        code, name = write.code, write.root_text
        function = code.function(write.statement)
        if not isinstance(function, Function) or name is None or name not in parameters(function):
            continue
        body = function.body
        if any(isinstance(s, ast.Return) and s.value is not None for s in own_statements(code, function)):
            continue
        if depth == 0 and write.statement is body[-1] and code.alone(write.statement):
            new = as_new_tensor(problem, code.text(write.statement)) or ""
            if new.startswith(f"{name} = ") and "\n" not in new:
                line = f"return {new.removeprefix(f'{name} = ')}"
                yield _proposal(code, line, code.apply(code.replace(write.statement, line)))
        top = next((s for s in body if write.statement in ast.walk(s)), None)
        if top is not None:
            edits = code.insert_before(top, f"{name} = {name}.clone()"), code.insert_after(body[-1], f"return {name}")
            yield _proposal(code, f"{name} = {name}.clone() … return {name}", code.apply(*edits))


def _proposal(code: Code, title: str, text: str) -> Proposal:
    return Proposal(title, _WHY, "handed_gradient", {code.cell.number: text}, lossless=True)
