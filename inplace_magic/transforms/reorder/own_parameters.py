"""A backward goes no further than to what its own step trains; what an earlier step has changed is not on the way there.

joint = torch.cat([a(x) for a in actors], 1)      joint = torch.cat([a(x) for a in actors], 1)
for i, opt in enumerate(opts):                    for i, opt in enumerate(opts):
    opt.zero_grad()                                   opt.zero_grad()
    loss = -critics[i](joint).mean()                  loss = -critics[i](joint).mean()
    loss.backward(retain_graph=True)                  loss.backward(retain_graph=True, inputs=list(actors[i].parameters()))
    opt.step()                                        opt.step()
"""

from __future__ import annotations

from collections.abc import Iterator

from ...message import message
from ..analysis.backward_calls import in_short, limited
from ..analysis.meetings import updates_weights
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register
from .move_step import step_for

_WHY = message("why_own_parameters")


@register("modified", "silent")
def own_parameters(problem: Problem) -> Iterator[Proposal]:
    if not problem.crossing.untrained or not updates_weights(problem):
        return
    for frame in problem.needed[::-1]:
        step = step_for(frame.code, frame.statement)
        edits = limited(problem, frame.code, frame.statement, step) if step is not None else []
        if edits:
            title = frame.code.edited(frame.statement, in_short(edits))
            yield in_one_text(frame.code, edits, title, _WHY, "own_parameters")
            return
