"""A buffer that is given out is given out as a copy, so that whoever fills it next leaves what was given alone.

stage.copy_(t)                    stage.copy_(t)
return stage                      return stage.clone()

kept.append(w.grad)               kept.append(w.grad.clone())
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ...message import message
from ...source.blocks import own_statements
from ...source.dataflow import called_name, calls_named
from ...source.editor import Code, Function
from ..analysis.targets import Site, root_text, sites, written_by
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_copy_is_given_out")


@register("silent")
def clone_returned(problem: Problem) -> Iterator[Proposal]:
    """A buffer that a function fills and returns, or keeps in an object."""
    for write in sites(problem, depth=2):
        function = write.code.function(write.statement)
        given = _of_written(write, function) if isinstance(function, Function) else []
        for how in ("clone", "copy"):  # of a tensor, of an array
            yield from _as_copies(write.code, given, how)


@register("silent")
def clone_shared(problem: Problem) -> Iterator[Proposal]:
    """``b.grad = buffer``, which is the gradient of another leaf already; and what is kept of such gradients."""
    for write in sites(problem, depth=1):
        if write.event.how == "shared":
            given = [*_given_out(write.statement), *_kept_gradients(write.code)]
            yield from _as_copies(write.code, given)


@register("modified")
def clone_given_out(problem: Problem) -> Iterator[Proposal]:
    """What another method, or another function beside the one that writes, gives out of that memory: ``return self.queue``."""
    written = [target for _, node in problem.nodes(ast.AST) for target in written_by(node)]
    for write in sites(problem, depth=1):
        code, own = write.code, write.code.function(write.statement)
        if isinstance(own, Function):
            others = [s for s in code.block(own) if isinstance(s, Function) and s is not own]
            given = [value for function in others for value in _of_written(write, function)]
            if any(calls_named(target, *(one.name for one in others)) for target in written):
                continue  # ``bank.get().zero_()``, ``bank.get()[0] = 1``: it is to be written through
            yield from _as_copies(code, given, form="clone_at_save")


def _of_written(write: Site, function: ast.AST) -> list[ast.expr]:
    """What a function gives out of the written memory."""
    given = [value for s in own_statements(write.code, function) for value in _given_out(s)]
    return [value for value in given if write.root_text is not None and root_text(write.code, value) == write.root_text]


def _as_copies(
    code: Code, values: Iterable[ast.expr], how: str = "clone", form: str = "clone_returned"
) -> Iterator[Proposal]:
    for value in values:
        yield in_one_text(code, [code.behind(value, f".{how}()")], code.statement(value), _WHY, form)


def _given_out(statement: ast.stmt) -> list[ast.expr]:
    """What is returned, or kept by an object."""
    kept = isinstance(statement, ast.Assign) and all(isinstance(t, ast.Attribute) for t in statement.targets)
    value = statement.value if isinstance(statement, ast.Return) or kept else None  # type: ignore[attr-defined]
    return [value] if value is not None else []


def _kept_gradients(code: Code) -> Iterator[ast.expr]:
    """``kept.append(w.grad)``: what the next backward adds to, or its seed."""
    for value in (call.args[0] for call in calls_named(code.tree, "append") if len(call.args) == 1):
        if called_name(getattr(value, "value", None)) == "grad" or getattr(value, "attr", "") == "grad":
            yield value
