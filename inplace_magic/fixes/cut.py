"""A value that two losses share is cut off for the later one, which then does not go back through it again.

lossD.backward(retain_graph=True)         lossD.backward(retain_graph=True)
optimD.step()                             optimD.step()
lossG = (g + d).sum()                     lossG = (g + d.detach()).sum()
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from ..source.editor import Edit, Function
from . import Problem, Proposal, register
from .flow import (
    Meeting,
    binds,
    calls_named,
    first_stack,
    frames,
    graph_reads,
    reads,
    update_after_save,
    update_between,
    value_reads,
    with_retain,
    without_retain,
)
from .targets import later


@register("modified", "second_backward", rank=35)
def cut(problem: Problem) -> Iterator[Proposal]:
    """The later loss takes the shared value without its history."""
    found = update_between(problem)
    if found is None or found.save is None or found.save not in found.first_loss:
        return
    earlier = found.first_loss
    behind = [s for s in (*found.loss, found.need) if s not in earlier and s is not found.save]
    shared = made_from(found, found.save) - {name for s in behind for name in binds(s)}
    edits, names, statement = _detach_reads(found, behind, shared)
    if statement is None:
        return
    for extra in _retained(problem, found):
        yield _proposal(found, [*edits, *extra], statement, f"The later loss no longer goes back through {names}.")


@register("second_backward", rank=34)
def cut_earlier(problem: Problem) -> Iterator[Proposal]:
    """The earlier loss takes it without its history, as when a discriminator is trained on ``fake.detach()``."""
    found = update_between(problem)
    if found is None or found.save is None:
        return
    shared = made_from(found, found.save)
    earlier = [s for s in found.first_loss if s not in found.loss and s is not found.save]
    edits, names, statement = _detach_reads(found, earlier, shared)
    if statement is not None:
        why = f"The earlier loss no longer goes back through {names}, and leaves that graph to the later one."
        yield _proposal(found, [*edits, *without_retain(found.code, [found.first])], statement, why)


@register("modified", "second_backward", rank=36)
def cut_made(problem: Problem) -> Iterator[Proposal]:
    """What was made with the old weights is given to everything behind it without its history."""
    found = update_after_save(problem)
    if found is None or found.save is None:
        return
    behind = found.block[found.block.index(found.save) + 1 : found.block.index(found.need) + 1]
    edits, names, statement = _detach_reads(found, behind, binds(found.save))
    if statement is not None:
        yield _proposal(found, edits, statement, f"No loss goes back through {names} any more.")


@register("modified", "second_backward", rank=36)
def cut_behind(problem: Problem) -> Iterator[Proposal]:
    """A function that makes an update of its own hands on what it made for that without its history.

    z_q = self.codebook(q)                    z_q = self.codebook(q)
    loss(z_q).backward(); self.opt.step()     loss(z_q).backward(); self.opt.step()
                                              z_q = z_q.detach()
    return z_q                                return z_q
    """
    saved = frames(problem, problem.save_stack)
    needed = {code.function(statement) for code, statement in frames(problem, problem.need_stack)}
    for code, statement in reversed(frames(problem, first_stack(problem.clash))):
        function = code.function(statement)
        save = next((s for other, s in saved if other is code and code.function(s) is function), None)
        if not isinstance(function, Function) or function in needed or save is None or save is statement:
            continue
        last = _end_of_update(code.block(statement), statement)
        rest = later(code, last)
        names = sorted(name for name in binds(save) if any(name in reads(s) for s in rest))
        if names:
            line = f"{', '.join(names)} = {', '.join(f'{name}.detach()' for name in names)}"
            text = code.apply(code.insert_after(last, line))
            why = "The update that the function makes uses that graph up; what comes later takes the values as given."
            yield Proposal(line, why, "cut", {code.cell.number: text})
        return


def _end_of_update(block: list[ast.stmt], backward: ast.stmt) -> ast.stmt:
    following = block[block.index(backward) + 1 :]
    return [backward, *itertools.takewhile(lambda s: calls_named(s, "step", "zero_grad", "backward"), following)][-1]


def _detach_reads(
    found: Meeting, statements: list[ast.stmt], names: set[str]
) -> tuple[list[Edit], str, ast.stmt | None]:
    """The edits that detach these names where the statements read them, and the first statement that does."""
    code = found.code
    read = graph_reads(code, statements, names)
    if not read or any(_is_backward(code.parent(node)) for node in read):
        return [], "", None
    edits = [code.replace(node, f"{code.text(node)}.detach()") for node in read]
    return edits, ", ".join(sorted({code.text(node) for node in read})), code.statement(read[0])


def _proposal(found: Meeting, edits: list[Edit], statement: ast.stmt, why: str) -> Proposal:
    text = found.code.apply(*edits)
    title = text.splitlines()[statement.lineno - 1].strip()
    return Proposal(title, why, "cut", {found.code.cell.number: text})


def made_from(found: Meeting, save: ast.stmt) -> set[str]:
    """Names before the first event that hang on what the statement made."""
    names = binds(save)
    for statement in found.before[found.before.index(save) + 1 :] if save in found.before else ():
        if value_reads(statement) & names:
            names = names | binds(statement)
    return names


def _is_backward(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "backward"


def _retained(problem: Problem, found: Meeting) -> list[list[Edit]]:
    """Whether the first backward has to keep the rest of the graph for the later one: tried without, then with."""
    if problem.family != "second_backward" and problem.clash.kind != "second_backward":
        return [[]]
    edits = [e for call in calls_named(found.first, "backward") if (e := with_retain(found.code, call)) is not None]
    return [[], edits] if edits else [[]]
