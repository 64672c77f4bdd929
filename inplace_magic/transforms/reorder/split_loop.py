"""A loop that updates becomes several: all backwards before all steps.

Losses of one forward, each with an optimizer of its own:

for opt, loss in zip(opts, losses):       for opt, loss in zip(opts, losses):
    opt.zero_grad()                           opt.zero_grad()
    loss.backward(retain_graph=True)      for opt, loss in zip(opts, losses):
    opt.step()                                loss.backward(retain_graph=True)
                                          for opt, loss in zip(opts, losses):
                                              opt.step()

An update may be a helper's as well. One loss goes back once, between the loops. Of parameters that several optimizers hold, each
step gets its own loss's gradients:

for opt, loss in zip(opts, losses):       grads = []
    opt.zero_grad()                       for opt, loss in zip(opts, losses):
    loss.backward(retain_graph=True)          params = ...
                                              grads.append(zip(params, torch.autograd.grad(loss, params, ...)))
                                          for (opt, loss), pairs in zip(zip(opts, losses), grads):
                                              opt.zero_grad()
                                              for p, g in pairs:
                                                  p.grad = g
    opt.step()                                opt.step()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.blocks import within
from ...source.dataflow import assigned, binds, calls_named, is_step, key_of, reads, targets
from ...source.editor import Code, as_item
from ...source.lift import lift
from ...source.lines import lines_of
from ..analysis.backward_calls import in_short, limited, loss_of, parameters_stepped, taken, taken_in_short
from ..analysis.iterations import iterations
from ..analysis.meetings import CLIPS, headline, share_leaves
from ..analysis.targets import torch_in
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_all_backwards_first")


@register("modified", "silent")
def split_loop(problem: Problem) -> Iterator[Proposal]:
    for turn in iterations(problem):
        if isinstance(turn.loop, ast.For):
            yield from _split(problem, turn.code, turn.loop, turn.need)


def _split(problem: Problem, code: Code, loop: ast.For, backward: ast.stmt) -> Iterator[Proposal]:
    """The loop's statements up to its backward in loops of their own, the steps in the last.

    Each iteration has an optimizer of its own: a training that goes on is not split.
    A loss may go back through what another optimizer steps: the backward is limited to what its own one holds, or is not.
    """
    bound = {key_of(one) for one in targets(loop.target)}
    changing = [within(code, loop.body, frame.statement) for frame in problem.lost if frame.code is code]
    update = next((s for s in loop.body if (is_step(s) or s in changing) and reads(s) & bound), None)
    leaves = any(isinstance(n, (ast.Break, ast.Continue, ast.Return)) for s in loop.body for n in ast.walk(s))
    if update is None or update not in code.following(backward) or not code.alone(loop) or loop.orelse or leaves:
        return
    need = problem.clash.need
    if not is_step(update) and not (need is not None and (need.asked or need.limited)):
        return  # each update would use the gradients of all losses
    # Behind a step, what clears the gradients would take them from the steps to come.
    zeroing = [s for s in loop.body if calls_named(s, "zero_grad") and s not in (backward, update)]
    before, after = (
        [s for s in part if s not in zeroing] for part in (code.preceding(update), [update, *code.following(update)])
    )
    kept = [k for call in calls_named(backward, "backward") for k in call.keywords if k.arg == "retain_graph"]
    elsewhere = {id(node) for one in kept for node in ast.walk(one)}
    names = (n for s in before for n in ast.walk(s) if isinstance(n, ast.Name) and id(n) not in elsewhere)
    once = not any(name.id in bound for name in names)  # one loss, for all of them
    items = (one for s in loop.body for one in assigned(s) if isinstance(one, ast.Subscript))
    apart = {code.text(one) for one in items if reads(one.slice) & bound}  # an item of each iteration's own
    read = [n for s in after for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    if binds(*loop.body) & {n.id for n in read if code.text(code.parent(n) or n) not in apart}:
        return
    shared = share_leaves(problem, 1)
    if shared and not once and zeroing:  # else gradients that are there already are added to
        yield from _gradients_first(problem, code, loop, backward, zeroing, after)
    inputs = limited(problem, code, backward, update) if is_step(update) and not shared else []
    start, colon, first = code.span(loop)[0], code.span(loop.iter)[1], code.span(loop.body[0])[0]
    head = code.cell.raw[start:colon] + lines_of(code.cell.raw[colon:first])[0].rstrip()
    free = [code.without_argument(one) for one in kept if once]
    for limit in (inputs, []):
        lines: list[str] = []
        for part in (zeroing, before, after):
            body = lift(code, part, [*limit, *free]).lines
            alone = once and part is before
            lines += body if alone else [head, *(code.indent_step + line for line in body)] if body else []
        called = headline(code, backward, [*in_short(limit), *free])
        title = message("title_backwards_first", backward=called)
        if once:
            title = message("title_before", what=called, other=headline(code, after[0]))
        edits = [code.instead(loop, *lines)]
        yield in_one_text(code, edits, title, _WHY, "split_loop")


def _gradients_first(
    problem: Problem, code: Code, loop: ast.For, backward: ast.stmt, zeroing: list[ast.stmt], after: list[ast.stmt]
) -> Iterator[Proposal]:
    """All gradients are taken with the weights of before; then each optimizer steps by its own."""
    torch, step, sent = torch_in(problem, code), next(filter(is_step, after), None), loss_of(backward)
    between = loop.body[loop.body.index(backward) + 1 : loop.body.index(after[0])]
    if torch is None or step is None or sent is None or not all(calls_named(s, *CLIPS) for s in between):
        return
    loss = code.text(sent)
    grads, params, pairs, p, g = (problem.unused(n, code, loop) for n in ("grads", "params", "pairs", "p", "g"))
    ahead = [s for s in code.preceding(backward) if s not in zeroing]
    through, unit = code.text(loop.iter), code.indent_step
    lines = [
        f"{grads} = []",
        f"for {code.text(loop.target)} in {through}:",
        *(unit + line for line in lift(code, ahead).lines),
        f"{unit}{params} = {parameters_stepped(problem, code, step)}",
        f"{unit}{grads}.append(zip({params}, {taken(torch[0], loss, params)}))",
        f"for {as_item(code, loop.target)}, {pairs} in zip({through}, {grads}):",
        *(unit + line for line in lift(code, zeroing).lines),
        f"{unit}for {p}, {g} in {pairs}:",
        f"{unit * 2}{p}.grad = {g}",
        *(unit + line for line in lift(code, [*between, *after]).lines),
    ]
    edits = [code.instead(loop, *lines), *torch[1]]
    title = message("title_before", what=f"{grads} = {taken_in_short(torch[0], loss)}", other=code.text(step))
    yield in_one_text(code, edits, title, message("why_gradients_taken"), "move_step: gradients first")
