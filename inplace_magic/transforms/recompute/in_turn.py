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
from ...source.editor import Code, Function, dotted
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
    """The items of one list or dict, all of which a statement makes ahead of the loop."""
    given = gone_through(loop, item.id)
    if called_name(given) == "items" and key_of_item(loop, item.id) is not None:
        given = given.func.value  # type: ignore[union-attr]
    if not isinstance(given, ast.Name):
        return
    last = next((s for s in reversed(code.preceding(loop)) if given.id in binds(s) | reads(s)), None)
    if isinstance(last, ast.Assign) and dotted(last.targets[0]) == given.id:
        items = _items(last)
        read = reads(*items)  # by then, what the loop binds would be another
        computed = all(isinstance(one, (ast.Call, ast.BinOp, ast.UnaryOp)) for one in items)
        if len(items) > 1 and computed and not read & binds(loop):
            yield _made_in_turn(problem, code, loop, item, given, last)
    match last:
        case ast.Assign([ast.Subscript(ast.Name(), ast.Constant())]) if not loop.orelse:
            yield from _last_of_a_dict(problem, code, loop, item.id, last)


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


def _items(statement: ast.Assign) -> list[ast.expr]:
    made = statement.value
    return made.values if isinstance(made, ast.Dict) else getattr(made, "elts", [])


def _made_in_turn(
    problem: Problem, code: Code, loop: ast.For, item: ast.Name, given: ast.Name, statement: ast.Assign
) -> Proposal:
    name, make, top = given.id, problem.unused("make", code, loop), code.function(loop)
    lambdas = code.edited(
        statement.value, [code.replace(one, f"lambda: {code.text(one)}") for one in _items(statement)]
    )
    # What stands at the top of a cell, any other cell may read.
    kept = not isinstance(top, Function) or len([*named(code, name, top.body)]) > 2
    line = f"{item.id} = {make}()"
    if isinstance(statement.value, ast.Dict):
        lines, empty = [f"{name}[{key_of_item(loop, item.id)}] = {line}" if kept else line], "{}"
    else:
        lines, empty = [line, *([f"{name}.append({item.id})"] if kept else [])], "[]"
    edits = [code.replace(given, lambdas), code.replace(item, make), code.insert_before(loop.body[0], *lines)]
    edits.append(code.replace(statement, f"{name} = {empty}") if kept else code.delete(statement))
    form = "recompute: in turn" if goes_through_update(problem) else "recompute: moved"
    return in_one_text(code, edits, lines[0], _WHY, form)
