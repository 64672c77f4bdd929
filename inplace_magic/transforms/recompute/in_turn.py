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

for name, loss in [("q", q_loss(x)), ...]:     for name, make in [("q", lambda: q_loss(x)), ...]:
                                                   loss = make()
    update(name, loss)                             update(name, loss)

losses = critic_losses(x)                      losses = critic_losses(x)
losses["pi"] = pi_loss(x)
for name, loss in losses.items():              for name, loss in losses.items():
    update(name, loss)                             update(name, loss)
                                               losses["pi"] = pi_loss(x)
                                               update("pi", losses["pi"])
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.bindings import gone_through, key_of_item
from ...source.dataflow import binds, called_name, reads
from ...source.editor import Code, Function, as_item, dotted
from ...source.lift import as_lines
from ...source.names import named, renamed
from ..analysis.iterations import iterations
from ..analysis.meetings import goes_through_update, headline, standing_in
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_graphs_of_their_own")


@register("modified")
def in_turn(problem: Problem) -> Iterator[Proposal]:
    for turn in iterations(problem):
        code, loop = turn.code, turn.loop
        if isinstance(loop, ast.For) and standing_in(code, [loop], problem.lost):
            for item in (n for n in ast.walk(loop.target) if isinstance(n, ast.Name)):
                yield from _of_item(problem, code, loop, item)


def _of_item(problem: Problem, code: Code, loop: ast.For, item: ast.Name) -> Iterator[Proposal]:
    """The items of one list or dict, all of which a statement makes ahead of the loop, or its head."""
    given = gone_through(loop, item.id) or loop.iter
    if called_name(given) == "items" and key_of_item(loop, item.id) is not None:
        given = given.func.value  # type: ignore[attr-defined]
    if isinstance(given, ast.List | ast.Tuple | ast.Dict):
        if _are_made(loop, items := _items(given, loop, item)):
            yield _made_in_turn(problem, code, loop, item, given, given, items)
        return
    if not isinstance(given, ast.Name):
        return
    last = next((s for s in reversed(code.preceding(loop)) if given.id in binds(s) | reads(s)), None)
    whole = isinstance(last, ast.Assign) and dotted(last.targets[0]) == given.id
    if isinstance(last, ast.Assign) and whole and _are_made(loop, items := _items(last.value, loop, item)):
        yield _made_in_turn(problem, code, loop, item, given, last.value, items)
    match last:
        case ast.Assign([ast.Subscript(ast.Name(), ast.Constant())]) if not loop.orelse:
            yield from _last_of_a_dict(problem, code, loop, item.id, last)


def _are_made(loop: ast.For, items: list[ast.expr]) -> bool:
    """Whether several are computed, of what is the same by the time of each turn."""
    computed = all(isinstance(one, (ast.Call, ast.BinOp, ast.UnaryOp)) for one in items)
    return len(items) > 1 and computed and not reads(*items) & binds(loop)


def _last_of_a_dict(problem: Problem, code: Code, loop: ast.For, item: str, last: ast.Assign) -> Iterator[Proposal]:
    """What is put into a dict right ahead of the loop is put there behind it, with an iteration of its own."""
    key, held = key_of_item(loop, item), last.targets[0]
    leaves = any(isinstance(n, (ast.Break, ast.Continue, ast.Return)) for n in ast.walk(loop))
    if key is None or leaves or not isinstance(held, ast.Subscript) or reads(last.value) & binds(loop):
        return
    as_written = renamed(code, loop.body, {key: code.text(held.slice), item: code.text(held)})
    lines = [line for s in (last, *loop.body) for line in as_lines(code, s, as_written if s is not last else [])]
    title = message("title_after", what=lines[0], other=headline(code, loop))
    form = "recompute: in turn" if goes_through_update(problem) else "recompute: moved"
    yield in_one_text(code, [code.delete(last), code.insert_after(loop, *lines)], title, _WHY, form)


def _items(made: ast.expr, loop: ast.For, item: ast.Name) -> list[ast.expr]:
    """What a loop calls ``item``, one after the other: the items of a list, the values of a dict, a column of rows."""
    items: list[ast.expr] = made.values if isinstance(made, ast.Dict) else getattr(made, "elts", [])
    if gone_through(loop, item.id) is not None:
        return items
    names = getattr(loop.target, "elts", [])
    rows = [getattr(row, "elts", []) for row in items]
    return [row[names.index(item)] for row in rows] if item in names and {*map(len, rows)} == {len(names)} else []


def _made_in_turn(
    problem: Problem,
    code: Code,
    loop: ast.For,
    item: ast.Name,
    given: ast.expr,
    made: ast.expr,
    items: list[ast.expr],
) -> Proposal:
    """``given``: what the loop goes through; ``made``: what has the items, that itself or what it names."""
    make, top = problem.unused("make", code, loop), code.function(loop)
    lambdas = code.edited(made, [code.replace(one, f"lambda: {code.text(one)}") for one in items])
    line, lines = f"{item.id} = {make}()", list[str]()
    edits = [code.replace(given, lambdas), code.replace(item, make)]
    if isinstance(given, ast.Name):
        # What stands at the top of a cell, any other cell may read.
        kept = not isinstance(top, Function) or len([*named(code, given.id, top.body)]) > 2
        put = isinstance(made, ast.Dict)
        if put and kept:
            line = f"{given.id}[{key_of_item(loop, item.id)}] = {line}"
        elif kept:
            whole = loop.target if gone_through(loop, item.id) is None else item
            lines = [f"{given.id}.append({as_item(code, whole)})"]
        statement = code.statement(made)
        edits.append(
            code.replace(statement, f"{given.id} = {'{}' if put else '[]'}") if kept else code.delete(statement)
        )
    edits.append(code.insert_before(loop.body[0], line, *lines))
    form = "recompute: in turn" if goes_through_update(problem) else "recompute: moved"
    return in_one_text(code, edits, line, _WHY, form)
