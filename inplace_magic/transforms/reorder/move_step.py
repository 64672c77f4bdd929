"""A step, or another update of the weights, goes behind the backward that still needs the old ones.

    loss0.backward(retain_graph=True)         loss0.backward(retain_graph=True)
    optimizer0.step()                         loss1 = criterion(head(features))
    loss1 = criterion(head(features))         optimizer1.zero_grad()
    optimizer1.zero_grad()                    loss1.backward(inputs=list(head.parameters()))
    loss1.backward()                          optimizer0.step()
    optimizer1.step()                         optimizer1.step()

Where the same optimizer steps again after the later backward, it steps but once, for both.

The later backward must not add to the gradients that the moved step uses, nor its zero_grad() clear them: it is
limited to its own parameters, or its gradients are taken first.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from functools import partial

from ...message import message
from ...source.dataflow import binds, calls_named, is_call, is_step, reads, root_of
from ...source.editor import Code, Edit, dotted
from ...source.lift import lift, moved
from ..analysis.backward_calls import in_short, limited, loss_of, parameters_stepped, taken, taken_in_short
from ..analysis.meetings import (
    Meeting,
    cleared_before,
    clears_by_hand,
    headline,
    share_leaves,
    standing_in,
    update_between,
    update_of,
)
from ..analysis.targets import reads_gradient, torch_in, updates_leaf
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_updates_after")
_ONCE = message("why_one_step")


@register("modified", "silent")
def move_step(problem: Problem) -> Iterator[Proposal]:
    found = update_between(problem)
    if found is None or (calls_named(found.first, "backward", "zero_grad", "zero_") and not _updates(found)):
        return
    if problem.family == "silent" and reads_gradient(found.first):
        return  # behind the later backward it would use the gradients of both, which no comparison of passes sees
    by_gradient = not is_step(found.first) and any(reads_gradient(frame.statement) for frame in problem.lost)
    if by_gradient and any(map(clears_by_hand, found.between)):
        return  # it would use the later loss's gradients alone
    code = found.code
    writers = _writers(problem, found)
    if binds(*writers) & reads(found.need):
        return  # it makes the loss
    late = update_of(found.block, found.need)
    following = late[-1] if is_step(late[-1]) else None
    names = [headline(code, s) for s in writers]
    steps = [code.text(s) for s in writers if not is_call(s, "zero_grad")]
    if following is not None and steps == [code.text(following)]:
        yield from _one_step(found, writers[0], names[0])
        return
    loop = isinstance(found.first, ast.For) and all(map(is_step, found.first.body))  # ``for opt in opts: opt.step()``
    alone = is_step(found.first) or loop or _updates(found)
    apart = alone and not share_leaves(problem, max(1, sum(map(is_step, writers))))
    if not apart and calls_named(found.need, "zero_grad"):
        return  # what the moved step is to use would be cleared
    # The step that uses the later backward's gradients: in a loop or a branch of their own, or behind other statements.
    inside = (f.statement for f in problem.needed if standing_in(code, [found.need], [f]))
    own = following or next(map(partial(step_for, code), inside), None)
    limit = limited(problem, found.code, found.need, own) if apart and own is not None else []
    if following is not None and _projects(problem, found):
        title = message("title_after", what=tuple(names), other=headline(code, following))
        yield in_one_text(code, moved(code, writers, following, behind=True), title, _WHY, "move_step: projection")
    edits = moved(code, writers, following or found.need, behind=following is None)
    for extra in (limit, []):
        title = message("title_after", what=tuple(names), other=found.needing(in_short(extra)))
        form = "move_step: unguarded" if is_step(found.first) and not extra else "move_step"
        why = _WHY if form == "move_step" else message("why_updates_after_both")
        cleared = [] if apart or not is_step(found.first) else _cleared_first(problem, found)
        yield in_one_text(code, [*edits, *extra, *cleared], title, why, form)
    if apart and not limit and own is not None:
        yield from _as_a_whole(problem, found, own)


def _as_a_whole(problem: Problem, found: Meeting, step: ast.stmt) -> Iterator[Proposal]:
    """The earlier update goes behind the later one, with its backward: that adds to no gradients of the other's then."""
    code, block, backward = found.code, found.block, _earlier_backward(problem, found)
    if backward is not None:
        update = block[cleared_before(block, backward) : block.index(found.first) + 1]
        title = message("title_after", what=("; ".join(headline(code, s) for s in update),), other=code.text(step))
        yield in_one_text(code, moved(code, update, step, behind=True), title, _WHY, "move_step")


def _projects(problem: Problem, found: Meeting) -> bool:
    """Whether weights are changed by no gradient, ``w.clamp_(min=0)``: such a change is due once they have been stepped."""
    by_gradient = any(reads_gradient(frame.statement) for frame in problem.lost)
    return not (is_step(found.first) or _updates(found) or by_gradient)


def _cleared_first(problem: Problem, found: Meeting) -> list[Edit]:
    """Of two steps that share parameters each uses the gradients of both losses: what clears them comes ahead of both backwards."""
    code, earlier = found.code, _earlier_backward(problem, found)
    clearing = [s for s in found.between if is_call(s, "zero_grad") and not _clears(code, s, found.first)]
    if earlier is None or _one_loss(earlier, found.need):
        return []  # one loss, sent back twice, would count twice for each
    return moved(code, clearing, found.block[cleared_before(found.block, earlier)])


def _one_loss(first: ast.stmt, second: ast.stmt) -> bool:
    """Whether two backwards go back from one value, at least in part. The items of a dict, by their keys, are values apart."""
    (names, items), (others, other_items) = _terms(first), _terms(second)
    of_items, of_others = ({item.partition("[")[0] for item in some} for some in (items, other_items))
    return bool(names & others or items & other_items or names & of_others or others & of_items)


def _terms(backward: ast.stmt) -> tuple[set[str], set[str]]:
    """What a statement goes back from: names, and items by a key that is written out, ``losses["policy"]``."""
    names, items = set[str](), set[str]()
    todo: list[ast.AST] = [root_of(backward) or backward]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and dotted(node.value):
            items.add(ast.unparse(node))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):  # a method: what it is called on
            todo += [node.func.value, *node.args, *(keyword.value for keyword in node.keywords)]
        elif isinstance(node, (ast.Name, ast.Attribute)) and (name := dotted(node)) is not None:
            names.add(name)
        else:
            todo += ast.iter_child_nodes(node)
    return names, items


def _earlier_backward(problem: Problem, found: Meeting) -> ast.stmt | None:
    """The statement of the block that runs the backward before the later one, ahead of the step."""
    before = problem.evidence.passes[: problem.ahead]
    earlier = [frame for one in before[-1:] for frame in problem.frames(one.backward.stack)]
    return next(iter(standing_in(found.code, found.block, earlier)), None)


def _updates(found: Meeting) -> bool:
    """Whether the two update, each by itself: ``with stepping(opt): loss.backward()``, a loop over losses and optimizers."""
    in_blocks = isinstance(found.first, ast.With | ast.If) and isinstance(found.need, ast.With | ast.If)
    if calls_named(found.first, "backward") and calls_named(found.first, "step"):
        stepped = is_step(update_of(found.block, found.need)[-1])
        return stepped or (in_blocks and bool(calls_named(found.need, "step")))
    return in_blocks


def step_for(code: Code, backward: ast.stmt) -> ast.stmt | None:
    """The step behind a backward in its block, ahead of the next one."""
    own = itertools.takewhile(lambda s: not calls_named(s, "backward", "zero_grad"), code.following(backward))
    return next(filter(is_step, own), None)


def _one_step(found: Meeting, step: ast.stmt, name: str) -> Iterator[Proposal]:
    """The same optimizer steps after the later backward anyway: once, with the gradients of both."""
    code = found.code
    gone = [step, *(s for s in found.between if _clears(code, s, step))]
    edits = [code.delete(s, *gone) for s in gone]
    # Where gradients are cleared once for both, the later step was to use the sum of them as it is.
    summed = not any(map(clears_by_hand, found.between))
    form = "restructure: as often as cleared" if summed else "move_step"
    yield in_one_text(code, edits, message("title_one_for_both", what=name), _ONCE, form, meant=summed)


def _clears(code: Code, statement: ast.stmt, step: ast.stmt) -> bool:
    """Whether a statement is the zero_grad of a step's optimizer."""
    return is_call(statement, "zero_grad") and code.text(statement.value.func.value) == code.text(step.value.func.value)  # type: ignore[attr-defined]


@register("modified", "silent")
def gradients_first(problem: Problem) -> Iterator[Proposal]:
    """Both gradients before either step, where the two optimizers share parameters, or all gradients are cleared."""
    found = update_between(problem)
    if found is None or not is_step(found.first):
        return
    code, need, late = found.code, found.need, update_of(found.block, found.need)
    loss, torch = loss_of(need), torch_in(problem, code)
    if not is_step(late[-1]) or loss is None or torch is None:
        return
    if not share_leaves(problem, 1) and not _clears_all(problem, found, late[-1]):
        return
    steps = [late[-1], *itertools.takewhile(is_step, code.following(late[-1]))]
    if code.text(found.first) in map(code.text, steps):
        return  # one optimizer would step twice from one point: whoever means that adds the losses up
    zeroing, makers = [s for s in late if is_call(s, "zero_grad")], [s for s in found.between if s in found.loss]
    params, grads, p, g = (problem.unused(name, code, need) for name in ("params", "grads", "p", "g"))
    first = _writers(problem, found)[0]
    new = [
        *lift(code, makers).lines,
        f"{params} = {parameters_stepped(problem, code, *steps)}",
        f"{grads} = {taken(torch[0], code.text(loss), params)}",
    ]
    loop = [f"for {p}, {g} in zip({params}, {grads}):", f"{code.indent_step}{p}.grad = {g}"]
    out = lift(code, sorted([need, *zeroing, *makers], key=found.block.index))
    edits = [*out.edits, code.insert_before(need, *loop), code.insert_before(first, *new), *torch[1]]
    what = f"{grads} = {taken_in_short(torch[0], code.text(loss))}"
    title = message("title_before", what=what, other=headline(code, first))
    yield in_one_text(code, edits, title, message("why_gradients_taken"), "move_step: gradients first")


def _clears_all(problem: Problem, found: Meeting, late: ast.stmt) -> bool:
    """Whether more than the two optimizers' own gradients is cleared in between, there or in a function of the user's."""
    clearing = {"zero_grad", *(f.name for _, f in problem.nodes(ast.FunctionDef) if calls_named(f, "zero_grad"))}
    between = [s for s in found.between if not any(_clears(found.code, s, step) for step in (found.first, late))]
    return any(calls_named(s, *clearing) for s in between)


def _writers(problem: Problem, found: Meeting) -> list[ast.stmt]:
    """The statement that wrote, with what the later backward meets as well: steps since the saving, updates by hand behind the
    statement, and what clears the gradients behind a step, in their order."""
    code, block = found.code, found.block
    if not is_step(found.first):
        return [found.first]
    stacks = [c.write.stack for c in problem.evidence.clashes if c.write is not None and c.need == problem.clash.need]
    met = standing_in(code, block, [frame for stack in stacks for frame in problem.frames(stack)])
    writers: list[ast.stmt] = []
    for s in block[: block.index(found.need)]:
        update = s in found.between and updates_leaf(problem, s)
        if s in met or update or any(_clears(code, s, one) for one in writers if is_step(one)):
            writers.append(s)
    return writers
