"""Layers, or parameters, that a module keeps in a list, a tuple or a dict are registered: ``parameters()`` gives them.

self.layers = [Linear(4, 4), Linear(4, 4)]    self.layers = nn.ModuleList([Linear(4, 4), Linear(4, 4)])
self.scales = []                              self.scales = nn.ParameterList()
self.heads = {"a": Linear(4, 1)}              self.heads = nn.ModuleDict({"a": Linear(4, 1)})
self.layers = layers                          self.layers = nn.ModuleList(layers)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.bindings import bound
from ...source.dataflow import called_name
from ...source.editor import Code
from ..analysis.targets import torch_in
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_registered")


@register("silent")
def registered(problem: Problem) -> Iterator[Proposal]:
    write = problem.clash.write
    if write is None or write.how != "unregistered":
        return
    (path, kind) = write.held
    attribute = path.rpartition(".")[2]
    for code, statement in problem.nodes(ast.stmt):
        for name, value in bound(code, statement):
            if value is None or name.partition(".")[2] != attribute:
                continue
            containers = _containers(value)
            nn = _nn(problem, code) if containers else None
            for container in containers if nn is not None else ():
                given = "" if ast.unparse(value) in ("[]", "{}", "list()", "dict()", "()") else code.text(value)
                edit = code.replace(value, f"{nn}.{kind}{container}({given})")
                yield in_one_text(code, [edit], code.edited(statement, [edit]).splitlines()[0], _WHY, "registered")


def _containers(value: ast.expr) -> tuple[str, ...]:
    """``List`` or ``Dict``, by what a value is, or one after the other."""
    called = called_name(value) if isinstance(value, ast.Call) else None
    if isinstance(value, ast.Dict | ast.DictComp) or called in ("dict", "OrderedDict"):
        return ("Dict",)
    if isinstance(value, ast.List | ast.ListComp | ast.Tuple) or called in ("list", "tuple"):
        return ("List",)
    return () if isinstance(value, ast.Constant) else ("List", "Dict")


def _nn(problem: Problem, code: Code) -> str | None:
    """The name that stands for torch.nn."""
    known = next((name for name, module in code.cell.modules.items() if module == "torch.nn"), None)
    torch = torch_in(problem, code) if known is None else None
    return known if torch is None else f"{torch[0]}.nn" if not torch[1] else None
