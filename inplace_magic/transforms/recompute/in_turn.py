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
from ...source.dataflow import binds, reads
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
            if made is not None:
                yield _made_in_turn(problem, code, made)


@dataclass(frozen=True)
class _Made:
    """What is made ahead of a loop: the list or dict that the loop is ``given``, its ``items``, the statement that makes them,
    and what the loop calls one of them."""

    loop: ast.For
    given: ast.Name
    statement: ast.Assign
    items: tuple[ast.expr, ...]
    item: ast.Name


def _made_ahead(code: Code, loop: ast.For) -> _Made | None:
    for item in (n for n in ast.walk(loop.target) if isinstance(n, ast.Name)):
        given = gone_through(loop, item.id)
        if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) and given.func.attr == "items":
            given = given.func.value if key_of_item(loop, item.id) is not None else None
        if not isinstance(given, ast.Name):
            continue
        name = given.id
        last = next((s for s in reversed(code.preceding(loop)) if name in binds(s) | reads(s)), None)
        if isinstance(last, ast.Assign) and dotted(last.targets[0]) == name:
            items = last.value.values if isinstance(last.value, ast.Dict) else getattr(last.value, "elts", [])
            read = {one for item in items for one in reads(item)}  # by then, what the loop binds would be another
            computed = all(isinstance(one, (ast.Call, ast.BinOp, ast.UnaryOp)) for one in items)
            if len(items) > 1 and computed and not read & binds(loop):
                return _Made(loop, given, last, tuple(items), item)
    return None


def _made_in_turn(problem: Problem, code: Code, made: _Made) -> Proposal:
    name, item, loop, make = made.given.id, made.item.id, made.loop, problem.unused("make", code, made.loop)
    key = key_of_item(loop, item) if isinstance(made.statement.value, ast.Dict) else None
    lambdas = code.edited(made.statement.value, [code.replace(one, f"lambda: {code.text(one)}") for one in made.items])
    kept, lines = _read_besides(code, made), [f"{item} = {make}()"]
    if kept and key is not None:
        lines = [f"{name}[{key}] = {item} = {make}()"]
    elif kept:
        lines.append(f"{name}.append({item})")
    empty = f"{name} = {'{}' if key is not None else '[]'}"
    edits = [code.replace(made.given, lambdas), code.replace(made.item, make)]
    edits += [code.insert_before(loop.body[0], *lines)]
    edits += [code.replace(made.statement, empty) if kept else code.delete(made.statement)]
    form = "recompute: in turn" if goes_through_update(problem) else "recompute: moved"
    return in_one_text(code, edits, lines[0], _WHY, form)


def _read_besides(code: Code, made: _Made) -> bool:
    """Whether somebody else may read the list: what stands at the top of a cell, any other cell."""
    top, own = code.function(made.loop), {id(made.given), *(id(n) for n in ast.walk(made.statement))}
    nodes = ast.walk(top) if top is not None else ()
    return top is None or any(isinstance(n, ast.Name) and n.id == made.given.id and id(n) not in own for n in nodes)
