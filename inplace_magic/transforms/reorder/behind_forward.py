"""What an iteration reads of the forward before goes behind the forward that makes it anew.

    penalty = orthogonality(net)              loss = criterion(net(x), y)
    loss = criterion(net(x), y)               penalty = orthogonality(net)

    loss = orthogonality(net)                 loss = criterion(net(x), y)
    loss = loss + criterion(net(x), y)        loss = loss + orthogonality(net)

A weight that a hook computes in each forward (``weight_norm``), features that a module keeps: until the forward has run they
are those of the iteration before, whose graph is freed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.dataflow import added, binds, reads
from ...source.lift import moved
from ..analysis.iterations import iterations
from ..analysis.meetings import headline, standing_in
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_behind_forward")


@register("second_backward", "modified")
def behind_forward(problem: Problem) -> Iterator[Proposal]:
    for turn in iterations(problem):
        code, body = turn.code, turn.body
        for edge in problem.crossing.over:
            used, made = (standing_in(code, body, problem.frames(stack)) for stack in (edge.used, edge.made))
            if not used or not made or body.index(used[0]) >= body.index(made[0]):
                continue
            early, forward = used[0], made[0]
            if not isinstance(early, ast.Assign) or not isinstance(forward, (ast.Assign, ast.AugAssign)):
                return
            title = message("title_after", what=(headline(code, early),), other=headline(code, forward))
            term = added(forward)
            if term is not None and binds(early) == binds(forward):
                edits = [code.replace(early.value, code.text(term[1])), code.replace(term[1], code.text(early.value))]
                yield in_one_text(code, edits, title, _WHY, "behind_forward")
            elif not binds(early) & reads(*body[body.index(early) + 1 : body.index(forward) + 1]):
                yield in_one_text(code, moved(code, [early], forward, behind=True), title, _WHY, "behind_forward")
            return
