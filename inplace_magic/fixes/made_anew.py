"""What an object made once and keeps, graph and all, is made anew where it is read.

def __init__(self):                           def __init__(self):
    scale = self.log_scale.exp()                  scale = self.log_scale.exp()
    self.prior = Normal(self.loc, scale)          self.prior = Normal(self.loc, scale)

def forward(self, z):                         def forward(self, z):
                                                  scale = self.log_scale.exp()
                                                  self.prior = Normal(self.loc, scale)
    return self.prior.log_prob(z)                 return self.prior.log_prob(z)

The same for what is made under a guard: ``if self.cache is None: self.cache = ...``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ..source.editor import Code, Function, dotted, names_bound
from . import Problem, Proposal, register
from .flow import assigned, binds, frames, reads, simple, slice_of, source_lines, value_reads, within
from .targets import parameters

_WHY = "Every round makes it anew, with a graph of its own and from the weights as they are by then."
_MOST = 5  # statements that a person would repeat
_MOST_READERS = 3


@dataclass(frozen=True)
class _Kept:
    """An attribute of ``self``, the statements that make it, the last one filling it, and the method they are in."""

    attribute: str
    made: list[ast.stmt]
    method: ast.FunctionDef | ast.AsyncFunctionDef


@register("modified", "second_backward", rank=35)
def made_anew(problem: Problem) -> Iterator[Proposal]:
    for code, statement in reversed(frames(problem, problem.save_stack)):
        kept = _kept(code, statement)
        if kept is None:
            continue
        fronts = list(_fronts(code, kept))
        if not fronts or len(fronts) > _MOST_READERS:
            return
        lines = [line for s in kept.made for line in source_lines(code, s)]
        edits = [code.insert_before(front, *lines) for _, front in fronts]
        yield Proposal(
            title=f"{source_lines(code, kept.made[-1])[0]} again in {', '.join(f'{name}()' for name, _ in fronts)}",
            why=_WHY,
            rule="made_anew",
            texts={code.cell.number: code.apply(*edits)},
        )
        return


def _kept(code: Code, statement: ast.stmt) -> _Kept | None:
    """What the statement's value is kept in, if that can be made again from ``self`` alone."""
    method = code.function(statement)
    if not isinstance(method, Function) or not isinstance(code.parent(method), ast.ClassDef) or not simple(statement):
        return None
    block = code.block(statement)
    tainted = set(binds(statement))
    filling = statement
    for later in block[block.index(statement) + 1 :]:
        if any(name.startswith("self.") for name in tainted):
            break
        if simple(later) and value_reads(later) & tainted:
            tainted |= binds(later)
            filling = later
    attribute = dotted(assigned(filling)[0]) if len(assigned(filling)) == 1 else None
    if attribute is None or not attribute.startswith("self.") or attribute.count(".") != 1:
        return None
    if not _once(code, method, filling) or _filled_elsewhere(code, method, attribute, filling):
        return None
    local = set(parameters(method)) - {"self"} | names_bound(method.body)
    ahead = [s for s in block[: block.index(filling)] if binds(s) & local]  # what self has, it has by then
    made, wanted = slice_of(ahead, value_reads(filling) & local)
    made.append(filling)
    if wanted & local or len(made) > _MOST or not all(simple(s) for s in made):
        return None
    return _Kept(attribute, made, method)


def _once(code: Code, method: ast.FunctionDef | ast.AsyncFunctionDef, filling: ast.stmt) -> bool:
    """Whether it is filled by a constructor, under a guard, or behind an early return."""
    top = within(code, method.body, filling)
    if method.name == "__init__" or top is not filling:
        return True
    ahead = method.body[: method.body.index(filling)]
    return any(isinstance(node, ast.Return) for s in ahead for node in ast.walk(s))


def _filled_elsewhere(code: Code, method: ast.AST, attribute: str, filling: ast.stmt) -> bool:
    """Whether the attribute gets another value, but for a ``None`` ahead of the first."""
    return any(
        isinstance(s, (ast.Assign, ast.AugAssign))
        and s is not filling
        and attribute in binds(s)
        and not isinstance(s.value, ast.Constant)
        for s in ast.walk(code.parent(method) or method)
    )


def _fronts(code: Code, kept: _Kept) -> Iterator[tuple[str, ast.stmt]]:
    """In each method that reads the attribute the first statement that does, which may be behind the guard."""
    cls = code.parent(kept.method)
    for method in cls.body if isinstance(cls, ast.ClassDef) else ():
        if not isinstance(method, Function) or method.name == "__init__":
            continue
        body = method.body
        if method is kept.method:
            top = within(code, body, kept.made[-1])
            body = body[body.index(top) + 1 :] if top is not None else []
        front = next((s for s in body if kept.attribute in reads(s)), None)
        if front is not None:
            yield method.name, front
