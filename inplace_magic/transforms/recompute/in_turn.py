"""Losses that are all made ahead of a loop which updates by one after the other are each made in their turn.

losses = {"q": q_loss(x), "pi": pi_loss(x)}    losses = {}
for name, loss in losses.items():              for name, make in {"q": lambda: q_loss(x), "pi": lambda: pi_loss(x)}.items():
                                                   losses[name] = loss = make()
    update(name, loss)                             update(name, loss)

losses = [q_loss(x), pi_loss(x)]               losses = []
for loss, opt in zip(losses, opts):            for make, opt in zip([lambda: q_loss(x), lambda: pi_loss(x)], opts):
                                                   loss = make()
                                                   losses.append(loss)
    ...                                            ...
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ...message import message
from ...source.bindings import gone_through, key_of_item
from ...source.blocks import loops, within
from ...source.dataflow import reads
from ...source.editor import Code, dotted
from ..analysis.meetings import goes_through_update
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_graphs_of_their_own")


@register("modified")
def in_turn(problem: Problem) -> Iterator[Proposal]:
    write = problem.clash.write
    if write is None or write.origin != "optim":
        return
    for frame in reversed(problem.needed):
        code = frame.code
        for loop in loops(code, frame.statement)[:1]:
            updates = any(f.code is code and within(code, [loop], f.statement) for f in problem.lost)
            made = _made_ahead(code, loop) if isinstance(loop, ast.For) and updates else None
            if made is not None and isinstance(loop, ast.For):
                yield _made_in_turn(problem, code, loop, made)


@dataclass(frozen=True)
class _Made:
    """What is made ahead: the items of a list or dict, the statement that makes them, and what the loop calls one."""

    name: str
    statement: ast.Assign
    items: list[ast.expr]
    item: str


def _made_ahead(code: Code, loop: ast.For) -> _Made | None:
    for target in (n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)):
        through = gone_through(loop, target)
        if isinstance(through, ast.Call) and isinstance(through.func, ast.Attribute) and through.func.attr == "items":
            through = through.func.value if key_of_item(loop, target) is not None else None
        for s in reversed(code.preceding(loop)) if isinstance(through, ast.Name) else ():
            if isinstance(through, ast.Name) and isinstance(s, ast.Assign) and dotted(s.targets[0]) == through.id:
                items = s.value.values if isinstance(s.value, ast.Dict) else getattr(s.value, "elts", [])
                computed = len(items) > 1 and all(isinstance(one, (ast.Call, ast.BinOp, ast.UnaryOp)) for one in items)
                return _Made(through.id, s, items, target) if computed else None
            if isinstance(through, ast.Name) and through.id in reads(s):
                break
    return None


def _made_in_turn(problem: Problem, code: Code, loop: ast.For, made: _Made) -> Proposal:
    make, top = problem.unused("make", code, loop), code.function(loop)
    key = key_of_item(loop, made.item) if isinstance(made.statement.value, ast.Dict) else None
    lambdas = code.edited(made.statement.value, [code.replace(one, f"lambda: {code.text(one)}") for one in made.items])
    given = next(n for n in ast.walk(loop.iter) if isinstance(n, ast.Name) and n.id == made.name)
    named = next(n for n in ast.walk(loop.target) if isinstance(n, ast.Name) and n.id == made.item)
    kept = top is None or any(
        isinstance(n, ast.Name)
        and n.id == made.name
        and n is not given
        and within(code, [made.statement], code.statement(n)) is None
        for n in ast.walk(top)
    )
    lines, empty = [f"{made.item} = {make}()"], "{}" if key is not None else "[]"
    if kept and key is not None:
        lines = [f"{made.name}[{key}] = {made.item} = {make}()"]
    elif kept:
        lines.append(f"{made.name}.append({made.item})")
    edits = [code.replace(given, lambdas), code.replace(named, make), code.insert_before(loop.body[0], *lines)]
    edits.append(code.replace(made.statement, f"{made.name} = {empty}") if kept else code.delete(made.statement))
    form = "recompute: in order" if goes_through_update(problem) else "recompute: moved"
    return in_one_text(code, edits, lines[0], _WHY, form)
