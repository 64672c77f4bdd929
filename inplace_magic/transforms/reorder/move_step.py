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
from collections.abc import Iterator

from ...message import message
from ...source.dataflow import calls_named, is_call, is_step, simple
from ...source.editor import Code, Edit
from ...source.lift import lift, unused
from ..analysis.backward_calls import add_argument
from ..analysis.meetings import Meeting, update_between, update_of
from ..analysis.targets import updates_leaf
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_updates_after")
_ONCE = message("why_one_step")


@register("modified", "silent")
def move_step(problem: Problem) -> Iterator[Proposal]:
    found = update_between(problem)
    if found is None or calls_named(found.first, "backward", "zero_grad", "zero_"):
        return
    if problem.family == "silent" and not is_step(found.first) and _by_hand(found.first):
        return  # behind the later backward it would use the gradients of both, which no comparison of passes sees
    code = found.code
    moved = _writers(problem, found)
    late = update_of(found.block, found.need)
    following = late[-1] if is_step(late[-1]) else None
    names = [" ".join(code.text(s).split()) if simple(s) else message("the_update") for s in moved]
    if following is not None and [code.text(s) for s in moved] == [code.text(following)]:
        yield from _one_step(found, moved[0], names[0])
        return
    title = message("title_after", what=tuple(names), other=" ".join(code.text(found.need).split()))
    limit = (
        _limited(problem, found, following)
        if is_step(found.first) and not _shared(problem, sum(map(is_step, moved)))
        else None
    )
    edits = _moved(code, moved, found.need, following)
    if edits is None:
        return
    for extra in [[limit], []] if limit is not None else [[]]:
        form = "move_step: unguarded" if is_step(found.first) and not extra else "move_step"
        yield in_one_text(code, [*edits, *extra], title, _WHY, form)


def _one_step(found: Meeting, step: ast.stmt, name: str) -> Iterator[Proposal]:
    """The same optimizer steps after the later backward anyway: once, with the gradients of both."""
    code = found.code
    gone = [step, *(s for s in found.between if _clears(code, s, step))]
    if all(code.alone(s) for s in gone):
        edits = [code.delete(s) for s in gone]
        yield in_one_text(code, edits, message("title_one_for_both", what=name), _ONCE, "move_step")


def _clears(code: Code, statement: ast.stmt, step: ast.stmt) -> bool:
    """Whether a statement is the zero_grad of a step's optimizer."""
    return is_call(statement, "zero_grad") and code.text(statement.value.func.value) == code.text(step.value.func.value)  # type: ignore[attr-defined]


def _by_hand(statement: ast.stmt) -> bool:
    """Whether an update reads gradients itself."""
    return any(isinstance(node, ast.Attribute) and node.attr == "grad" for node in ast.walk(statement))


@register("modified", "silent")
def gradients_first(problem: Problem) -> Iterator[Proposal]:
    """Both gradients before either step, where the two optimizers share parameters."""
    found = update_between(problem)
    if found is None or not is_step(found.first) or not _shared(problem, 1):
        return
    code = found.code
    late = update_of(found.block, found.need)
    call = next(iter(calls_named(found.need, "backward")), None)
    if (
        not is_step(late[-1])
        or call is None
        or not isinstance(call.func, ast.Attribute)
        or not is_call(found.need, "backward")
    ):
        return
    makers = [s for s in found.between if s in found.loss]
    if not all(simple(s) and code.alone(s) for s in makers):
        return
    owner = code.text(late[-1].value.func.value)  # type: ignore[attr-defined]
    parameters = _parameters(problem, owner) or f'[p for group in {owner}.param_groups for p in group["params"]]'
    params, grads = unused("params", code), unused("grads", code)
    first = _writers(problem, found)[0]
    new = [
        f"{params} = {parameters}",
        f"{grads} = torch.autograd.grad({code.text(call.func.value)}, {params}, retain_graph=True, allow_unused=True)",
    ]
    lifted = lift(code, makers)
    insert = code.insert_before(first, *new)
    if lifted is not None:
        insert = Edit(insert.start, insert.end, lifted.text.rstrip("\r\n") + code.newline + insert.text)
    zeroing = [s for s in late if is_call(s, "zero_grad")]
    loop = [f"for p, g in zip({params}, {grads}):", "    p.grad = g"]
    edits = [code.delete(s) for s in zeroing]
    edits += [code.delete(found.need), code.insert_before(_after(found.block, found.need), *loop)]
    if not code.alone(found.need) or not all(code.alone(s) for s in zeroing):
        return
    edits += [insert, *(lifted.edits if lifted is not None else ())]
    what = f"{grads} = torch.autograd.grad({code.text(call.func.value)}, …)"
    title = message("title_before", what=what, other=" ".join(code.text(first).split()))
    yield in_one_text(code, edits, title, message("why_gradients_taken"), "move_step: gradients first")


def _shared(problem: Problem, moved: int) -> bool:
    """Whether the later optimizer updates parameters that a moved step updates too. True if that is not known."""
    passes = problem.evidence.passes
    at = problem.clash.need.index if problem.clash.need is not None else 0
    if not 0 < at < len(passes) or not passes[at].steps:
        return True
    later = {g.leaf for g in passes[at].steps[0]}
    return any(g.leaf in later for one in passes[max(0, at - moved) : at] for step in one.steps for g in step)


def _after(block: list[ast.stmt], statement: ast.stmt) -> ast.stmt:
    return block[block.index(statement) + 1]


def _writers(problem: Problem, found: Meeting) -> list[ast.stmt]:
    """The statement that wrote, with every other update between the saving and the needing, in their order."""
    block = found.block
    start = block.index(found.save) + 1 if found.save is not None else 0
    if not is_step(found.first):
        return [found.first]
    first = block.index(found.first)
    return [
        s
        for i, s in enumerate(block[: block.index(found.need)])
        if i >= start and (is_step(s) or (i > first and updates_leaf(problem, s) and not calls_named(s, "backward")))
    ]


def _moved(code: Code, moved: list[ast.stmt], need: ast.stmt, following: ast.stmt | None) -> list[Edit] | None:
    if all(code.alone(s) for s in moved):
        lifted = lift(code, moved)
        if lifted is None:
            return None
        lines = [line for line in lifted.text.splitlines() if line.strip()]
        anchor = following or need
        indent = code.indent(anchor)
        lines = [line.removeprefix(indent) for line in lines]
        if following is not None and code.alone(following):
            return [*_deletions(code, moved), code.insert_before(following, *lines)]
        return [*_deletions(code, moved), code.insert_after(need, *lines)]
    texts = [code.text(s) for s in moved]
    target = code.insert_before(following, *texts) if following is not None else code.insert_after(need, *texts)
    return [*_deletions(code, moved), target]


def _deletions(code: Code, statements: list[ast.stmt]) -> list[Edit]:
    if all(code.alone(s) for s in statements):
        lifted = [lift(code, [s]) for s in statements]
        return [Edit(e.start, e.end, "") for one in lifted if one is not None for e in one.edits]
    return [code.delete(s) for s in statements]


def _limited(problem: Problem, found: Meeting, following: ast.stmt | None) -> Edit | None:
    """``inputs=`` for the later backward: the parameters of the optimizer that steps after it."""
    calls = calls_named(found.need, "backward")
    if following is None or not calls or any(k.arg == "inputs" for k in calls[0].keywords):
        return None
    owner = found.code.text(following.value.func.value)  # type: ignore[attr-defined]
    parameters = _parameters(problem, owner) or f'[p for group in {owner}.param_groups for p in group["params"]]'
    return add_argument(found.code, calls[0], f"inputs={parameters}")


def _parameters(problem: Problem, owner: str) -> str | None:
    """``list(net.parameters())`` where the notebook makes the optimizer from just that."""
    for code in problem.codes():
        for node in ast.walk(code.tree):
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call) or not node.value.args:
                continue
            if any(isinstance(t, ast.expr) and code.text(t) == owner for t in node.targets):
                given = node.value.args[0]
                ends = isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) and not given.args
                if ends and given.func.attr == "parameters":  # type: ignore[attr-defined]
                    return f"list({code.text(given)})"
                return None
    return None
