"""What an iteration hands on to the next one is computed again, with the weights as they are by then.

next_state = encode(next_obs)             next_state = encode(next_obs)
learn(loss(state, next_state))            learn(loss(state, next_state))
state = next_state                        state = encode(next_obs)

now = ahead                               now = ahead
ahead = encode(obs[t + 1])                ahead = encode(obs[t + 1])
learn(loss(now, ahead))                   learn(loss(now, ahead))
                                          ahead = encode(obs[t + 1])
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.dataflow import binds, handed_on
from ...source.lift import source_lines
from ..analysis.iterations import iterations
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_next_iteration_anew")


@register("modified", "second_backward")
def recompute_carried(problem: Problem) -> Iterator[Proposal]:
    saved = [frame.statement for frame in problem.frames(problem.save_stack)]
    for turn in (one for one in iterations(problem) if one.loop):
        code, body = turn.code, turn.body
        makers = [s for s in body if s in saved and isinstance(s, ast.Assign) and isinstance(s.value, ast.Call)]
        made = {name: s for s in makers if len(binds(s)) == 1 for name in binds(s)}
        pairs = [(s, target, value) for s in body for target, value in handed_on(s)]
        for statement, target, value in pairs:
            maker = made.get(value.id) if isinstance(value, ast.Name) else None
            if maker is None:
                continue
            if body.index(maker) < body.index(statement):
                text = code.text(maker.value)
                line, edit = f"{code.text(target)} = {text}", code.replace(value, text)
            else:  # by then the names that it is made from would be those of the next iteration
                lines = source_lines(code, maker)
                line, edit = "\n".join(lines), code.insert_after(body[-1], *lines)
            yield in_one_text(code, [edit], line, _WHY, "recompute_carried")
