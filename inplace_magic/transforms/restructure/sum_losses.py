"""Two losses on one graph: one backward of their sum gives the same gradients, in one walk.

loss_a.backward()                         (loss_a + loss_b).backward()
loss_b.backward()

for loss in losses:                       sum(losses).backward()
    loss.backward()

for w, loss in zip(weights, losses):      sum(w * loss for w, loss in zip(weights, losses)).backward()
    (w * loss).backward()

for x, y in sequence:                     total = 0
    h = cell(x, h)                        for x, y in sequence:
    loss = criterion(h, y)                    h = cell(x, h)
    loss.backward()                           loss = criterion(h, y)
opt.step()                                    total = total + loss
                                          total.backward()
                                          opt.step()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.blocks import upwards
from ...source.dataflow import binds, is_called, is_step, key_of, of_head, reads, sums
from ...source.editor import Code, atom
from ..analysis.backward_calls import loss_of
from ..analysis.iterations import Iteration, iterations
from ..analysis.meetings import meeting, standing_in, updates_weights, uses_gradients
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_sum_losses")


@register("second_backward", "modified")
def sum_losses(problem: Problem) -> Iterator[Proposal]:
    found = meeting(problem)
    if found is None:
        yield from _whole_loop(problem)
        return
    code = found.code
    first, second = loss_of(found.first), loss_of(found.need)
    if first is None or second is None or ast.dump(first) == ast.dump(second):
        return
    if uses_gradients(found.between) or binds(*found.between) & reads(first):
        return
    text = f"({_term(code, first)} + {_term(code, second)}).backward()"
    yield in_one_text(code, [code.delete(found.first), code.replace(found.need, text)], text, _WHY, "sum_losses")


def _whole_loop(problem: Problem) -> Iterator[Proposal]:
    """A loop that calls backward on one loss after the other."""
    for turn in iterations(problem):
        code, statement, loop, root = turn.code, turn.need, turn.loop, loss_of(turn.need)
        rest = [s for s in turn.body if s is not statement]
        if not isinstance(loop, ast.For) or loop.orelse or root is None or uses_gradients(rest):
            continue
        if problem.family == "modified" and updates_weights(problem) and standing_in(code, rest, problem.lost):
            continue  # each update of such a loop uses the sum of the gradients so far
        if binds(*rest) & reads(root):
            if _carried_by_loop(problem, turn):
                yield from _added_up(problem, code, loop, statement, root)
            continue
        if not reads(root) & {key_of(one) for one in of_head(loop)}:
            continue  # one loss, again and again
        target, through, loss = code.text(loop.target), code.text(loop.iter), code.text(root)
        text = f"sum({through if loss == target else f'{loss} for {target} in {through}'}).backward()"
        edits = [code.insert_before(loop, text), code.delete(statement)] if rest else [code.replace(loop, text)]
        yield in_one_text(code, edits, text, _WHY, "sum_losses")


def _carried_by_loop(problem: Problem, turn: Iteration) -> bool:
    """Whether what goes on from one iteration into the next has a name of the loop's own function: an object that keeps it is a
    memory, which one who goes back in each iteration does not mean to go back through."""
    holders = [holder for edge in problem.crossing.over for holder in edge.holders]
    return all(one.scope == turn.function and "." not in one.path for one in holders)


def _added_up(problem: Problem, code: Code, loop: ast.For, backward: ast.stmt, loss: ast.expr) -> Iterator[Proposal]:
    """A loop that makes one loss after the other on a graph that goes on, for one step behind it."""
    behind = [s for above in upwards(code, loop) for s in code.following(above)]
    # `autograd.grad` adds nothing to a leaf.
    grads = (n for n in ast.walk(loop) if isinstance(n, ast.Attribute) and n.attr == "grad" and not is_called(code, n))
    if not any(map(is_step, behind)) or any(grads) or sums(loop) & reads(loss):
        return  # a sum that goes on would count its first terms in each of its values
    total = problem.unused("total", code, loop)
    line = f"{total} = {total} + {_term(code, loss)}"
    edits = [code.insert_before(loop, f"{total} = 0"), code.replace(backward, line)]
    edits.append(code.insert_after(loop, f"{total}.backward()"))
    title = message("title_once_over", what=f"{total}.backward()")
    yield in_one_text(code, edits, title, _WHY, "sum_losses: over a loop")


def _term(code: Code, node: ast.expr) -> str:
    text = code.text(node)
    return text if isinstance(node, ast.BinOp) and "\n" not in text else atom(code, node)
