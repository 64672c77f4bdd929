"""What an iteration hands on to the next one is computed again, with the weights as they are by then.

next_state = encode(next_obs)             next_state = encode(next_obs)
learn(loss(state, next_state))            learn(loss(state, next_state))
state = next_state                        state = encode(next_obs)

now = ahead                               now = ahead
ahead = encode(obs[t + 1])                ahead = encode(obs[t + 1])
learn(loss(now, ahead))                   learn(loss(now, ahead))
                                          ahead = encode(obs[t + 1])

Of a call that also gives something that may be drawn, ``a, q = choose(obs)``, only what the value is made of is run again.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from ...message import message
from ...source.dataflow import handed_on
from ...source.lift import as_lines
from ..analysis.iterations import iterations
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register
from .written_out import written_out

_WHY = message("why_next_iteration_anew")


@register("modified", "second_backward")
def recompute_carried(problem: Problem) -> Iterator[Proposal]:
    saved = [frame.statement for frame in problem.saved]
    called = dict(zip(saved, itertools.pairwise(problem.saved)))
    for turn in iterations(problem):
        code, body = turn.code, turn.body
        makers = [s for s in body if s in saved and isinstance(s, ast.Assign)]
        made = {name: made for s in makers for name, made in _made_by(s)}
        pairs = [(s, target, value) for s in body for target, value in handed_on(s)]
        for statement, target, value in pairs:
            found = made.get(value.id) if isinstance(value, ast.Name) else None
            if found is None:
                continue
            maker, item = found
            if body.index(maker) < body.index(statement):
                anew = written_out(*called[maker], int(item[1:-1])) if item and maker in called else None
                for text in filter(None, (anew, f"{code.text(maker.value)}{item}")):
                    line, edit = f"{code.text(target)} = {text}", code.replace(value, text)
                    yield in_one_text(code, [edit], line, _WHY, "recompute_carried")
            else:  # by then the names that it is made from would be those of the next iteration
                lines = as_lines(code, maker)
                edit = code.insert_after(body[-1], *lines)
                yield in_one_text(code, [edit], "\n".join(lines), _WHY, "recompute_carried")


def _made_by(statement: ast.Assign) -> Iterator[tuple[str, tuple[ast.Assign, str]]]:
    """The names to which a statement gives what it makes, each with which of it: all, or ``[0]`` of a tuple."""
    target = statement.targets[0]
    parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else None
    first = itertools.takewhile(lambda one: not isinstance(one, ast.Starred), parts or [target])
    for at, one in enumerate(first):
        if isinstance(one, ast.Name):
            yield one.id, (statement, "" if parts is None else f"[{at}]")
