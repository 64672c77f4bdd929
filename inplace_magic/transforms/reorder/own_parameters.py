"""A backward goes no further than to what its own step trains; what an earlier step has changed is not on the way there.

joint = torch.cat([a(x) for a in actors], 1)      joint = torch.cat([a(x) for a in actors], 1)
for i, opt in enumerate(opts):                    for i, opt in enumerate(opts):
    opt.zero_grad()                                   opt.zero_grad()
    loss = -critics[i](joint).mean()                  loss = -critics[i](joint).mean()
    loss.backward(retain_graph=True)                  loss.backward(retain_graph=True, inputs=list(actors[i].parameters()))
    opt.step()                                        opt.step()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.dataflow import calls_named
from ...source.editor import Code
from ..analysis.backward_calls import in_short, limited
from ..analysis.meetings import before_step
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register
from .move_step import step_for

_WHY = message("why_own_parameters")


@register("modified", "silent")
def own_parameters(problem: Problem) -> Iterator[Proposal]:
    for frame in problem.needed[::-1] if problem.crossing.untrained else ():
        code, step = frame.code, step_for(frame.code, frame.statement)
        edits = limited(problem, code, frame.statement, step) if step is not None else []
        if edits and not _clips_more(code, frame.statement, edits[0].text):
            yield in_one_text(code, edits, code.edited(frame.statement, in_short(edits)), _WHY, "own_parameters")


def _clips_more(code: Code, backward: ast.stmt, limit: str) -> bool:
    """Whether the norm of more gradients than those of the limit scales what is stepped."""
    behind = before_step(code.following(backward))
    clipped = [code.text(call.args[0]) for s in behind for call in calls_named(s, "clip_grad_norm_") if call.args]
    return any(f"list({one})" not in limit for one in clipped)
