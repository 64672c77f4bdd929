"""torch copies what is changed between its save and its backward, in a block in which all three happen.

for x in tasks:                   with torch.autograd.graph.allow_mutation_on_saved_tensors():
    adapt(net, x)                     for x in tasks:
    loss += cost(net, x)                  adapt(net, x)
    net.load_state_dict(start)            loss += cost(net, x)
loss.backward()                           net.load_state_dict(start)
                                      loss.backward()

The backward finds the values as they were saved, whoever wrote, and wherever: nothing else of the program is changed. It is for
where nothing simpler serves, since torch looks at every operation of the block.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from ...message import message
from ...outcome.kept import Outcome
from ...source.blocks import loops, upwards, within
from ...source.editor import Code
from ...source.lift import wrapped
from ..analysis.targets import torch_in
from ..problem import Frame, Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_mutation_allowed")
_SUSPENDS = (ast.Yield, ast.YieldFrom, ast.Await)


@register("modified")
def allow_mutation(problem: Problem) -> Iterator[Proposal]:
    """The smallest run of statements that holds all three events, and the outermost loop around it, innermost call first."""
    if not _stays(problem) or _within_backward(problem):
        return
    for code, statements in _runs(problem):
        named = torch_in(problem, code)
        if named is None:
            continue
        torch, imported = named
        header = f"with {torch}.autograd.graph.allow_mutation_on_saved_tensors():"
        edit = wrapped(code, statements, header)
        if edit is not None:
            yield in_one_text(code, [edit, *imported], header, _WHY, "allow_mutation", lossless=True)


def _stays(problem: Problem) -> bool:
    """Whether what is written outlives the block: a weight that an optimizer holds, or a norm's statistics.

    torch finds its copies by address and version (``_get_tid`` in torch 2.13): a tensor that lands where a written one was before it
    was freed would be given that one's copy, and a gradient be silently wrong. So would, by chance, what is saved after a call
    that writes a list of tensors (``torch._foreach_add_``, the step of a foreach or fused optimizer): under a dispatch mode, which
    the block is, that raises no version.
    """
    outcome = problem.evidence.outcome or Outcome()
    held = outcome.statistics | {path for path, leaf in outcome.leaves.items() if leaf.optimizers}
    writes = [one.write for one in problem.evidence.clashes if one.kind == "modified"]
    return all(one is not None and not one.by_list and (one.origin == "optim" or one.name in held) for one in writes)


def _within_backward(problem: Problem) -> bool:
    """Whether a hook of the backward writes, such as an optimizer's step: it would make an update for each loss, and one for all was
    wanted."""
    statements = [frame.statement for frame in problem.needed]
    return len(problem.lost) > len(statements) and [f.statement for f in problem.lost[: len(statements)]] == statements


def _runs(problem: Problem) -> Iterator[tuple[Code, list[ast.stmt]]]:
    levels = list(zip(problem.saved, problem.lost, problem.needed))
    together = itertools.takewhile(lambda frames: len({frame.statement for frame in frames}) == 1, levels)
    for frames in reversed(levels[: len(list(together)) + 1]):
        run, code = _run(frames), frames[0].code
        if run:
            yield code, run
            for outermost in loops(code, run[0])[-1:]:
                yield code, [outermost]


def _run(frames: tuple[Frame, ...]) -> list[ast.stmt]:
    """The statements of the innermost block that holds what the frames of one call run; none where who goes through a
    generator would go on within the block."""
    code = frames[0].code
    for above in upwards(code, frames[0].statement) if all(one.code is code for one in frames) else ():
        block = code.block(above)
        held = [within(code, block, one.statement) for one in frames]
        at = [block.index(s) for s in held if s is not None]
        if len(at) == len(held):
            run = block[min(at) : max(at) + 1]
            return [] if any(isinstance(n, _SUSPENDS) for s in run for n in ast.walk(s)) else run
    return []
