"""What a round hands on to the next one is computed again, with the weights as they are by then.

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
from ..analysis.iterations import rounds
from ..analysis.meetings import frames
from ..problem import Problem
from ..proposal import Proposal
from ..registry import register

_WHY = message("why_next_round_anew")


@register("modified", "second_backward")
def recompute_carried(problem: Problem) -> Iterator[Proposal]:
    saved = [statement for _, statement in frames(problem, problem.save_stack)]
    for turn in rounds(problem):
        if not turn.loop:
            return
        code = turn.code
        made = {
            name: s
            for s in turn.body
            if s in saved and isinstance(s, ast.Assign) and isinstance(s.value, ast.Call) and len(binds(s)) == 1
            for name in binds(s)
        }
        for statement in turn.body:
            for target, value in handed_on(statement):
                if not isinstance(value, ast.Name) or value.id not in made:
                    continue
                maker = made[value.id]
                if turn.body.index(maker) < turn.body.index(statement):
                    text = code.text(maker.value)
                    line, edit = f"{code.text(target)} = {text}", code.replace(value, text)
                else:  # by then the names that it is made from would be those of the next round
                    lines = source_lines(code, maker)
                    line, edit = "\n".join(lines), code.insert_after(turn.body[-1], *lines)
                texts = {code.cell.number: code.apply(edit)}
                yield Proposal(" ".join(line.split()), _WHY, "recompute_carried", texts)
