"""A value that two losses share is cut off for the later one, which then does not go back through it again.

lossD.backward(retain_graph=True)         lossD.backward(retain_graph=True)
optimD.step()                             optimD.step()
lossG = (g + d).sum()                     lossG = (g + d.detach()).sum()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from . import Problem, Proposal, register
from .code import Edit
from .flow import Meeting, binds, calls_named, meeting, value_reads, with_retain


@register("modified", "second_backward", rank=35)
def cut(problem: Problem) -> Iterator[Proposal]:
    found = meeting(problem)
    if found is None or found.save is None:
        return
    code = found.code
    shared = made_from(found, found.save)
    later = [s for s in (*found.between, found.need) if s in found.loss or s is found.need]
    reads = [node for s in later for node in ast.walk(s) if _reads_one(node, shared)]
    if not reads or any(
        isinstance(code.parent(node), ast.Attribute) and _is_backward(code.parent(node)) for node in reads
    ):
        return
    edits = [code.replace(node, f"{code.text(node)}.detach()") for node in reads]
    statement = code.statement(reads[0])
    names = ", ".join(sorted({code.text(node) for node in reads}))
    for extra in _retained(problem, found):
        text = code.apply(*edits, *extra)
        yield Proposal(
            title=text.splitlines()[statement.lineno - 1].strip(),
            why=f"The later loss no longer goes back through {names}; what lies behind it gets no gradient from there.",
            rule="cut",
            texts={code.cell.number: text},
        )


def made_from(found: Meeting, save: ast.stmt) -> set[str]:
    """Names before the first event that hang on what the statement made."""
    names = binds(save)
    for statement in found.before[found.before.index(save) + 1 :] if save in found.before else ():
        if value_reads(statement) & names:
            names = names | binds(statement)
    return names


def _reads_one(node: ast.AST, names: set[str]) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names


def _is_backward(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in ("backward", "item", "detach", "data")


def _retained(problem: Problem, found: Meeting) -> list[list[Edit]]:
    """Whether the first backward has to keep the rest of the graph for the later one: tried without, then with."""
    if problem.family != "second_backward" and problem.clash.kind != "second_backward":
        return [[]]
    edits = [e for call in calls_named(found.first, "backward") if (e := with_retain(found.code, call)) is not None]
    return [[], edits] if edits else [[]]
