"""What the later loss is made from is computed once more, or only then: with the weights as they are by that time.

    d = D(g)                                  d = D(g)
    ...                                       ...
    optimD.step()                             optimD.step()
    lossG = (g + d).sum()                     d = D(g)
                                              lossG = (g + d).sum()

A loss that nothing else uses is moved behind the step instead of being computed twice. Where the step changed what
came earlier, the last part alone is computed again, from detached inputs: ``d = D(g.detach())``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.dataflow import binds, graph_reads, reads, simple, value_reads
from ...source.editor import Edit
from ...source.lift import lift, source_lines, start_with_comments
from ..analysis.iterations import holdings
from ..analysis.meetings import Meeting, update_after_save, update_between, update_of
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_MOST = 5  # statements that a person would repeat
_ANEW = message("why_later_loss_anew")
_FROM_VALUES = message("why_later_loss_as_given")


@register("modified", "second_backward")
def compute_later(problem: Problem) -> Iterator[Proposal]:
    """The statements that make the later loss, and nothing else, go behind the step."""
    found = update_between(problem)
    if found is None or found.save is None:
        return
    moved = exclusive(found)
    if found.save not in moved:
        return
    code = found.code
    lifted = lift(code, moved)
    front = update_of(found.block, found.need)[0]
    between = [s for s in found.loss if s in found.between]
    front = min([front, *between], key=found.block.index)
    if lifted is None or not code.alone(front):
        return
    at = start_with_comments(code, front)
    title = message("title_before_its_backward", what=code.text(moved[-1]).splitlines()[0])
    why = message("why_loss_before_its_backward")
    yield in_one_text(code, [Edit(at, at, lifted.text), *lifted.edits], title, why, "recompute: later loss moved")


@register("modified", "second_backward")
def compute_again(problem: Problem) -> Iterator[Proposal]:
    """The shared part of the forward is repeated after the step."""
    found = update_after_save(problem)
    if found is None or found.save is None or found.save in exclusive(found):
        return
    code = found.code
    chain = _chain(problem, found)
    if not chain and found.save in found.before and is_call_alone(found.save):
        chain = [found.save]  # what it makes, it keeps in attributes
    if not chain or len(chain) > _MOST or not all(simple(s) for s in chain):
        return
    made = {name for s in chain for name in binds(s)}
    after = (*found.between, *update_of(found.block, found.need))
    users = [s for s in after if (s in found.loss or s is found.need) and reads(s) & made] if made else [found.need]
    if not users:
        return
    front = users[0] if users[0] is not found.need else update_of(found.block, found.need)[0]
    for copies, why in _copies(problem, found, chain):
        title = "; ".join(copies) if len(copies) < 3 else f"{copies[0]} … {copies[-1]}"
        for extra in [_detached_inputs(problem, found, chain), []]:
            if extra is None:
                continue
            said = message("title_again_after_step" if problem.family == "modified" else "title_again", what=title)
            edits = [code.insert_before(front, *copies), *extra]
            yield in_one_text(code, edits, said, why, "recompute: later loss again")


def _copies(problem: Problem, found: Meeting, chain: list[ast.stmt]) -> Iterator[tuple[list[str], str]]:
    """What to repeat, and why: all of the chain, or its later parts, which take what is made ahead of them as given."""
    code = found.code
    yield [line for s in chain for line in source_lines(code, s)], _ANEW
    for first in range(1, len(chain)) if problem.clash.kind == "modified" else ():
        rest = chain[first:]
        given = {name for s in chain[:first] for name in binds(s)} - {name for s in rest for name in binds(s)}
        edits = [code.replace(node, f"{node.id}.detach()") for node in graph_reads(code, rest, given)]
        if edits:
            yield [line for s in rest for line in source_lines(code, s, edits)], _FROM_VALUES


def is_call_alone(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)


def exclusive(found: Meeting) -> list[ast.stmt]:
    """Statements before the first event that only the later loss needs, from the one that saved on."""
    block = found.block
    start = block.index(found.save) if found.save in found.before else 0
    kept: list[ast.stmt] = []
    for statement in reversed(found.before[start:]):
        rest = [s for s in block[start : block.index(found.need)] if s not in kept and s is not statement]
        others = [s for s in rest if s not in found.loss or s in found.before]
        used = {name for s in others for name in value_reads(s)}
        if statement in found.loss and simple(statement) and not binds(statement) & used:
            kept.append(statement)
    return kept[::-1]


def _chain(problem: Problem, found: Meeting) -> list[ast.stmt]:
    """What has to be computed again: from the saving statement on, or all of the graph where it was freed."""
    needed = [s for s in found.loss if s in found.before]
    if problem.clash.kind == "second_backward":
        names = holdings(problem).get(problem.need_stack[-1].function if problem.need_stack else "", {})
        names = names or holdings(problem).get(_function(found), {})
        return [s for s in needed if binds(s) & names.keys()] if names else needed
    if found.save not in found.before:
        return []
    tainted = _made_from(found, found.save)
    start = found.before.index(found.save)
    return [s for s in needed if found.before.index(s) >= start and binds(s) & tainted]


def _function(found: Meeting) -> str:
    function = found.code.function(found.need)
    return getattr(function, "name", "<module>")


def _detached_inputs(problem: Problem, found: Meeting, chain: list[ast.stmt]) -> list[Edit] | None:
    """For the first loss the shared input is cut off, so that its backward leaves the input's graph alone.

    ``d = D(g)`` becomes ``d = D(g.detach())``, as in every GAN; None where there is no such input.
    """
    save = found.save
    if problem.clash.kind != "second_backward" or save not in found.before or not isinstance(save, ast.Assign):
        return None
    earlier = found.before[: found.before.index(save)]
    inputs = {name for s in earlier if s in chain for name in binds(s)}
    nodes = graph_reads(found.code, [save.value], inputs)
    if not nodes:
        return None
    return [found.code.replace(n, f"{n.id}.detach()") for n in nodes]


def _made_from(found: Meeting, save: ast.stmt) -> set[str]:
    """Names before the first event that hang on what the statement made."""
    names = binds(save)
    for statement in found.before[found.before.index(save) + 1 :] if save in found.before else ():
        if value_reads(statement) & names:
            names = names | binds(statement)
    return names
