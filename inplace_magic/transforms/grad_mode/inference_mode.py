"""A tensor made in inference mode can never enter a graph; one made under no_grad can.

with torch.inference_mode():      with torch.no_grad():
    features = body(x)                features = body(x)

@torch.no_grad()
def slot(self):                   def slot(self):
    return self.memory[0]             return self.memory[0]

@torch.inference_mode()
def features(self, x):            def features(self, x):          # where an optimizer steps the body
    return self.body(x)               return self.body(x)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...diagnosis import LiveChange
from ...message import message
from ...source.dataflow import given_to
from ...source.editor import Code, Function, atom, names_bound
from ...source.names import first_name
from ..analysis.targets import torch_in
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_no_grad_instead")
_VIEW_WHY = message("why_view_seen")
_MOST = 4


@register("inference", "no_grad_view")
def inference_mode(problem: Problem) -> Iterator[Proposal]:
    form = "inference_mode" if problem.family == "inference" else "inference_mode: of views"
    live = _live(problem)
    for code, mode in _modes_around(problem):
        func, switch = mode.func if isinstance(mode, ast.Call) else mode, _switch(code, mode)
        named = (code.text(func.value), []) if isinstance(func, ast.Attribute) else torch_in(problem, code)
        if named is not None and switch is not None:
            edit = code.replace(mode, f"{named[0]}.{switch}")
            title = f"with {edit.text}:" if isinstance(code.parent(mode), ast.withitem) else f"@{edit.text}"
            spared = problem.spared(code) if live else ()
            yield in_one_text(code, [edit, *named[1]], title, _WHY, form, live=live, spared=spared)


def _modes_around(problem: Problem) -> list[tuple[Code, ast.expr]]:
    """The first few inference modes: blocks and decorators that a stack leads to, then those of the cells before, nearest first."""
    found: dict[tuple[int, int], tuple[Code, ast.expr]] = {}
    frames = problem.frames((*problem.save_stack, *problem.write_stack, *problem.raised))[::-1]
    nodes = [(frame.code, above) for frame in frames for above in (frame.node, *frame.code.parents(frame.node))]
    for code, node in (*nodes, *problem.nodes(ast.AST)):
        for mode in modes(node, "inference_mode"):
            found.setdefault((code.cell.number, code.span(mode)[0]), (code, mode))
    return list(found.values())[:_MOST]


def _switch(code: Code, mode: ast.expr) -> str | None:
    """What takes the place of an inference mode; None where that is switched off."""
    match given_to(mode):
        case [] | [ast.Constant(True)]:
            return "no_grad()"
        case [ast.Constant()]:
            return None
        case [given, *_]:
            return f"set_grad_enabled(not {atom(code, given)})"
    return None


def _live(problem: Problem) -> tuple[LiveChange, ...]:
    """The inference tensors that lie about in the session become normal ones."""
    code = problem.code(problem.cell)
    made_here = names_bound(code.tree.body) if code is not None else set()
    paths = problem.evidence.inference_tensors if problem.family == "inference" else ()
    return tuple(LiveChange("clone", path) for path in paths if first_name(path) not in made_here)


def modes(node: ast.AST, *names: str) -> Iterator[ast.expr]:
    """The expressions ``torch.no_grad`` and the like, with or without a call, of a block or of a definition.

    ``set_grad_enabled(False)`` is one more ``no_grad``.
    """
    candidates = [item.context_expr for item in node.items] if isinstance(node, (ast.With, ast.AsyncWith)) else []
    for one in [*candidates, *getattr(node, "decorator_list", ())]:
        func = one.func if isinstance(one, ast.Call) else one
        name = ast.unparse(func).rpartition(".")[2] if isinstance(func, (ast.Attribute, ast.Name)) else ""
        if name == "set_grad_enabled" and [ast.unparse(value) for value in given_to(one)] == ["False"]:
            name = "no_grad"
        if name in names:
            yield one


@register("no_grad_view")
def maker_with_gradients(problem: Problem) -> Iterator[Proposal]:
    """The view comes from a function that is decorated with no_grad: it is made without the decorator."""
    for frame in reversed(problem.saved):
        function = frame.code.function(frame.statement)
        off = list(modes(function, "no_grad", "inference_mode")) if function is not None else []
        if len(off) == 1:
            yield from undecorated(frame.code, off[0], _VIEW_WHY, "inference_mode: maker")


@register("inference")
def maker_that_is_trained(problem: Problem) -> Iterator[Proposal]:
    """An optimizer steps leaves that have no gradient: what a decorator keeps from being trained may be among them."""
    stepped = (gradient for one in problem.evidence.passes for step in one.steps for gradient in step)
    if any(gradient.digest is None for gradient in stepped):
        for code, mode in _modes_around(problem):
            if _switch(code, mode) == "no_grad()":
                yield from undecorated(code, mode, message("why_connected"), "connected: trained")


def undecorated(code: Code, mode: ast.expr, why: str, form: str) -> Iterator[Proposal]:
    function = code.function(mode)
    if isinstance(function, Function) and mode in function.decorator_list:
        title = message("title_undecorated", name=function.name, decorator=code.text(mode))
        yield in_one_text(code, [code.without_decorator(mode)], title, why, form)
