"""Gradients begin anew, ahead of the backward that would add to those of the step before, or behind the step that uses them.

loss = model(x).sum()                loss = model(x).sum()
loss.backward()                      optimizer.zero_grad()
optimizer.step()                     loss.backward()
                                     optimizer.step()

w.data -= lr * w.grad                w.data -= lr * w.grad
                                     w.grad = None

loss.backward()                      optimizer.zero_grad()
optimizer.zero_grad()                loss.backward()
optimizer.step()                     optimizer.step()

optimizer.zero_grad()                loss.backward()
loss.backward()                      if i % 4 == 3:
if i % 4 == 3:                           optimizer.step()
    optimizer.step()                     optimizer.zero_grad()

optimizer.zero_grad()                optimizer.zero_grad()
loss.backward()                      loss.backward()
                                     optimizer.step()

Where several steps, or lines of one, go by such sums, each gets its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from ...message import message
from ...source.blocks import within
from ...source.dataflow import called_name
from ...source.editor import Code, dotted
from ...source.lift import moved
from ..analysis.meetings import headline
from ..analysis.targets import root_text, written_by
from ..problem import Frame, Problem
from ..proposal import Change, Proposal, in_one_text
from ..registry import register

_WHY = message("why_zero_grad")
_USED = message("why_stepped_by")


@register("silent")
def zero_grad(problem: Problem) -> Iterator[Proposal]:
    how = problem.clash.write.how if problem.clash.write is not None else "written"
    if how == "cleared":
        yield from _moved(problem)
    elif how == "discarded" and problem.saved:
        yield from _behind_step(problem)
    elif how == "discarded":
        yield from _stepped_by(problem)
    if how != "added_up":
        return
    sums = [one for one in problem.evidence.clashes if one.write is not None and one.write.how == how]
    for ahead in (True, False):  # behind it only where it cannot be ahead: a backward of others may stand between
        found = [_begun_anew(replace(problem, clash=one), ahead) for one in sums]
        changes = dict.fromkeys(change for one in found if one is not None for change in one[1])
        mine = next((one for clash, one in zip(sums, found, strict=True) if clash is problem.clash), None)
        if mine is not None and None not in found:
            yield Proposal(mine[0], _WHY, "zero_grad" if ahead else "zero_grad: behind the step", tuple(changes))
            return


def _moved(problem: Problem) -> Iterator[Proposal]:
    """What clears the gradients, ahead of the backward instead of behind it, or else behind the step that follows on it."""
    for clears, backward in zip(problem.lost, problem.needed, strict=False):
        code, first, last = clears.code, backward.statement, clears.statement
        last = within(code, code.block(first), last) or last  # ``for p in parameters: p.grad = None`` as a whole
        if backward.code is code and first is not last and last in code.block(first):
            title = message("title_before", what=headline(code, last), other=f"`{code.text(first)}`")
            yield in_one_text(code, moved(code, [last], first), title, _WHY, "zero_grad: moved")
            if clears is problem.lost[-1]:  # and no call of what clears and steps
                return
    code, cleared = problem.lost[-1].code, problem.lost[-1].statement
    behind = code.block(cleared)[code.block(cleared).index(cleared) + 1 :]
    step = next((s for s in behind if isinstance(s, ast.Expr) and called_name(s.value) == "step"), None)
    if step is not None:
        yield _put_behind(code, cleared, step)


def _put_behind(code: Code, cleared: ast.stmt, step: ast.stmt) -> Proposal:
    title = message("title_behind", what=code.text(cleared), other=f"`{code.text(step)}`")
    return in_one_text(code, moved(code, [cleared], step, behind=True), title, _USED, "zero_grad: moved")


def _behind_step(problem: Problem) -> Iterator[Proposal]:
    """What clears the gradients of each backward, behind the step, which comes less often."""
    for clears, step in zip(problem.lost, problem.saved, strict=False):
        code, first, last = clears.code, clears.statement, step.statement
        if step.code is code and first is not last and code.function(first) is code.function(last):
            yield _put_behind(code, first, last)


def _stepped_by(problem: Problem) -> Iterator[Proposal]:
    """A step of the optimizer that clears the gradients, behind the backward."""
    clears, backward = problem.lost[-1], problem.needed[-1]
    call = clears.expression
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and backward.code is clears.code:
        text = f"{clears.code.text(call.func.value)}.step()"
        edit = backward.code.insert_after(backward.statement, text)
        yield in_one_text(backward.code, [edit], text, _USED, "zero_grad: stepped by")


def _begun_anew(problem: Problem, ahead: bool) -> tuple[str, tuple[Change, ...]] | None:
    """The title and the change for one step, ``ahead`` of the backwards that it follows on, or behind it."""
    for step in problem.saved[::-1]:
        code, name = step.code, _optimizer(problem, step)
        if name is not None:
            first = _first_backward(problem, step) if ahead else None
            text = _clearing(step, name)
            if first is not None:
                return text, ((first[0], first[0].insert_before(first[1], text)),)
            return None if ahead else (text, ((code, code.insert_after(step.statement, text)),))
        gradient = _gradient(step)
        if gradient is not None:
            text, first = f"{gradient} = None", _first_backward(problem, step)
            reads = [n for n in _attributes(code.tree) if n.lineno > step.statement.lineno and code.text(n) == gradient]
            following = [s for s in code.following(step.statement) if any(n in reads for n in _attributes(s))]
            last = [step.statement, *following][-1]
            if first is not None and any(
                n.lineno > (last.end_lineno or n.lineno) for n in reads
            ):  # once the loop is over
                return text, ((first[0], first[0].insert_before(first[1], text)),)
            return text, ((code, code.insert_after(last, text)),)
    return None


def _first_backward(problem: Problem, step: Frame) -> tuple[Code, ast.stmt] | None:
    """The statement with the first backward of those that a step follows on, in the step's own block; where the step calls it, in
    the closure. None where a step does not follow on each time that block is run, as under a condition.
    """
    code, function = step.code, step.code.function(step.statement)
    called = any(frame.statement is step.statement for frame in problem.lost)
    for frame in problem.lost[::-1]:
        if called and frame.code.function(frame.statement) is not function:
            return frame.code, frame.statement
        if frame.code is code and frame.code.function(frame.statement) is function:
            return (
                (code, top) if (top := within(code, code.block(step.statement), frame.statement)) is not None else None
            )
    return None


def _optimizer(problem: Problem, step: Frame) -> str | None:
    """The name of an optimizer that a line steps, or has a scaler step: ``opt`` of ``opt.step(closure)``, ``scaler.step(opt)``."""
    call = step.expression
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or called_name(call) != "step":
        return None
    given = dotted(call.args[0]) if call.args else None
    closures = {function.name for _, function in problem.nodes(ast.FunctionDef)}
    return given if given is not None and given not in closures else step.code.text(call.func.value)


def _clearing(step: Frame, name: str) -> str:
    """``opt.zero_grad()``; the whole of ``[opt.zero_grad() for opt in opts]``."""
    text, statement = f"{name}.zero_grad()", step.statement
    if any(isinstance(above, ast.ListComp) for above in step.code.parents(step.expression)):
        return step.code.edited(statement, [step.code.replace(step.expression, text)])
    return text


def _gradient(step: Frame) -> str | None:
    """What a line has stepped by: ``w.grad``, as it reads that, or else by what it writes into."""
    code, written = step.code, written_by(step.statement)
    targets = [code.text(one) for one in written]
    for one in (n for n in _attributes(step.statement) if n.attr == "grad"):
        name = code.text(one.value)
        if any(target == name or target.startswith((f"{name}.", f"{name}[")) for target in targets):
            return code.text(one)
    names = (root_text(code, one) for one in written)
    return next((f"{name.removesuffix('.data')}.grad" for name in names if name is not None), None)


def _attributes(statement: ast.AST) -> list[ast.Attribute]:
    return [n for n in ast.walk(statement) if isinstance(n, ast.Attribute)]
