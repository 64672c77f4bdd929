"""A tensor made in inference mode can never enter a graph; one made under no_grad can.

with torch.inference_mode():      with torch.no_grad():
    features = body(x)                features = body(x)

@torch.no_grad()
def slot(self):                   def slot(self):
    return self.memory[0]             return self.memory[0]
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ...diagnosis import LiveChange
from ...message import message
from ...source.bindings import bindings
from ...source.editor import Code, Edit, Function, names_bound
from ...source.location import SourceRange
from ..analysis.targets import written
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_no_grad_instead")
_VIEW_WHY = message("why_view_seen")
_MOST = 4


@register("inference", "no_grad_view")
def inference_mode(problem: Problem) -> Iterator[Proposal]:
    """The blocks and decorators that a stack leads to first, then those of the cells before, nearest first."""
    found: dict[tuple[int, int], tuple[Code, ast.expr]] = {}
    for spot in _spots(problem):
        code = problem.code(spot.cell)
        node = code.at(spot) if code is not None else None
        if code is not None and node is not None:
            for above in (node, *code.parents(node)):
                for mode in _modes(above):
                    found.setdefault((code.cell.number, code.span(mode)[0]), (code, mode))
    for number in sorted((n for n in problem.sources.cells if n <= problem.cell), reverse=True):
        code = problem.code(number)
        if code is None:
            continue
        for inner in ast.walk(code.tree):
            for mode in _modes(inner):
                found.setdefault((number, code.span(mode)[0]), (code, mode))
    form = "inference_mode" if problem.family == "inference" else "inference_mode: of views"
    live = _live(problem)
    for code, mode in list(found.values())[:_MOST]:
        edit = _renamed(code, mode)
        title = f"with {edit.text}:" if isinstance(code.parent(mode), ast.withitem) else f"@{edit.text}"
        spare = bool(live) and code.cell.number != problem.cell
        yield in_one_text(code, [edit], title, _WHY, form, live=live, spare=spare)


def _live(problem: Problem) -> tuple[LiveChange, ...]:
    """The inference tensors that lie about in the session become normal ones."""
    code = problem.code(problem.cell)
    made_here = names_bound(code.tree.body) if code is not None else set()
    paths = problem.evidence.inference_tensors if problem.family == "inference" else ()
    heads = [(path, re.match(r"\w+", path)) for path in paths]
    return tuple(LiveChange("clone", path) for path, head in heads if head and head.group() not in made_here)


def _spots(problem: Problem) -> tuple[SourceRange, ...]:
    return (*problem.save_stack, *problem.write_stack, *problem.raised)


def _modes(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions ``torch.inference_mode`` with or without a call, of a block or of a definition."""
    candidates: list[ast.expr] = []
    if isinstance(node, (ast.With, ast.AsyncWith)):
        candidates = [item.context_expr for item in node.items]
    elif isinstance(node, (*Function, ast.ClassDef)):
        candidates = list(node.decorator_list)
    for one in candidates:
        func = one.func if isinstance(one, ast.Call) else one
        name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
        if name == "inference_mode":
            yield one


def _renamed(code: Code, mode: ast.expr) -> Edit:
    func = mode.func if isinstance(mode, ast.Call) else mode
    owner = f"{code.text(func.value)}." if isinstance(func, ast.Attribute) else "torch."
    return code.replace(mode, f"{owner}no_grad()")


@register("no_grad_view")
def maker_with_gradients(problem: Problem) -> Iterator[Proposal]:
    """The view comes from a function that is decorated with no_grad: it is made without the decorator."""
    write = written(problem)
    name = write.root_text if write is not None else None
    if write is None or name is None:
        return
    made = [b.value for b in bindings(write.code, name, write.statement)[:1]]
    called = made[0].func if made and isinstance(made[0], ast.Call) else None
    wanted = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", None)
    for number in sorted(problem.sources.cells, reverse=True) if wanted is not None else ():
        code = problem.code(number)
        for node in ast.walk(code.tree) if code is not None else ():
            if code is None or not isinstance(node, Function) or node.name != wanted:
                continue
            off = [d for d in node.decorator_list if _switches_off(code, d)]
            if len(off) != 1:
                continue
            start, end = code.span(off[0])
            raw = code.cell.raw
            edit = Edit(raw.rfind("\n", 0, start) + 1, raw.find("\n", end) + 1, "")
            title = message("title_undecorated", name=node.name, decorator=code.text(off[0]))
            yield in_one_text(code, [edit], title, _VIEW_WHY, "inference_mode: maker")


def _switches_off(code: Code, node: ast.expr) -> bool:
    text = code.text(node)
    return "no_grad" in text or "inference_mode" in text
