"""What a round hands on to the next one is computed again, with the weights as they are by then.

next_state = encode(next_obs)             next_state = encode(next_obs)
learn(loss(state, next_state))            learn(loss(state, next_state))
state = next_state                        state = encode(next_obs)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from . import Problem, Proposal, register
from .carried_state import rounds
from .flow import binds, frames

_WHY = "The next round begins with a graph of its own, through the weights as the step has left them."


@register("modified", "second_backward", rank=28)
def recompute_carried(problem: Problem) -> Iterator[Proposal]:
    saved = [statement for _, statement in frames(problem, problem.save_stack)]
    for turn in rounds(problem):
        if not turn.loop:
            return
        code = turn.code
        made = {
            name: s.value
            for s in turn.body
            if s in saved and isinstance(s, ast.Assign) and isinstance(s.value, ast.Call) and len(binds(s)) == 1
            for name in binds(s)
        }
        for statement in turn.body:
            if (
                isinstance(statement, ast.Assign)
                and isinstance(statement.value, ast.Name)
                and statement.value.id in made
            ):
                text = code.text(made[statement.value.id])
                yield Proposal(
                    title=f"{code.text(statement.targets[0])} = {' '.join(text.split())}",
                    why=_WHY,
                    rule="recompute_carried",
                    texts={code.cell.number: code.apply(code.replace(statement.value, text))},
                )
