"""What an iteration hands on to the next one is computed again, with the weights as they are by then.

next_state = encode(next_obs)             next_state = encode(next_obs)
learn(loss(state, next_state))            learn(loss(state, next_state))
state = next_state                        state = encode(next_obs)

now = ahead                               now = ahead
ahead = encode(obs[t + 1])                ahead = encode(obs[t + 1])
learn(loss(now, ahead))                   learn(loss(now, ahead))
                                          ahead = encode(obs[t + 1])

state = encode(next_obs)                  update(net, obs)
update(net, obs)                          state = encode(next_obs)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.blocks import within
from ...source.dataflow import binds, calls, handed_on, key_of, live_in, reads, targets
from ...source.lift import lift, source_lines
from ..analysis.iterations import Iteration, iterations
from ..analysis.meetings import headline
from ..analysis.moving import may_pass
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
        made = {name: made for s in makers for name, made in _made_by(s)}
        pairs = [(s, target, value) for s in body for target, value in handed_on(s)]
        for statement, target, value in pairs:
            found = made.get(value.id) if isinstance(value, ast.Name) else None
            if found is None:
                continue
            maker, item = found
            if body.index(maker) < body.index(statement):
                text = f"{code.text(maker.value)}{item}"
                line, edit = f"{code.text(target)} = {text}", code.replace(value, text)
            else:  # by then the names that it is made from would be those of the next iteration
                lines = source_lines(code, maker)
                line, edit = "\n".join(lines), code.insert_after(body[-1], *lines)
            yield in_one_text(code, [edit], line, _WHY, "recompute_carried")


def _made_by(statement: ast.Assign) -> Iterator[tuple[str, tuple[ast.Assign, str]]]:
    """The names to which a statement gives what it makes, each with which of it: all, or ``[0]`` of a tuple."""
    target = statement.targets[0]
    for at, one in enumerate(targets(target)) if len(statement.targets) == 1 else ():
        if isinstance(one, ast.Name):
            yield one.id, (statement, f"[{at}]" if isinstance(target, ast.Tuple) else "")


@register("modified")
def made_behind_update(problem: Problem) -> Iterator[Proposal]:
    """What only the next iteration reads is made behind the update, with what is made of it and read there alone, too."""
    write = problem.clash.write
    for turn in (one for one in iterations(problem) if one.loop and write is not None and write.origin == "optim"):
        code, update = turn.code, _last_update(problem, turn)
        saved = [within(code, turn.body, f.statement) for f in problem.frames(problem.save_stack) if f.code is code]
        for maker in (s for s in saved if s is not None):
            moved = _read_later(turn, maker, update) if update is not None else []
            lifted = lift(code, moved)
            if lifted is not None and update is not None:
                title = message(
                    "title_after", what=tuple(headline(code, s) for s in moved), other=headline(code, update)
                )
                edits = [*lifted.edits, code.insert_after(update, *lifted.lines)]
                yield in_one_text(code, edits, title, _WHY, "recompute_carried")


def _read_later(turn: Iteration, maker: ast.stmt, update: ast.stmt) -> list[ast.stmt]:
    """The maker of what the next iteration reads, with what is made of it; empty if one of them is read up to the update."""
    moved, stays, (first, last) = [maker], [update], map(turn.body.index, (maker, update))
    for one in turn.body[first + 1 : last]:
        (moved if any(binds(s) & reads(one) for s in moved) else stays).append(one)
    made = {name for s in moved for name in binds(s)}
    on_object = any("." in name for name in made)  # which others may read through their own calls
    leaves = any(isinstance(node, ast.Continue | ast.Break | ast.Return) for s in stays for node in ast.walk(s))
    owners = {key_of(call.func.value) for s in moved for call in calls(s) if isinstance(call.func, ast.Attribute)}
    asked = any(owners & reads(s) for s in stays if s is not update)  # what is called may have changed by its calls
    if first >= last or on_object or leaves or asked or not made & live_in(turn.body):
        return []
    if not may_pass(turn.code, moved, stays, update):
        return []
    return moved if all(isinstance(s, ast.Assign) for s in moved) else []


def _last_update(problem: Problem, turn: Iteration) -> ast.stmt | None:
    """The last statement of an iteration that is seen to have changed what a conflict is about."""
    stacks = [clash.cause.stack for clash in problem.evidence.clashes if clash.cause is not None]
    frames = [frame for stack in stacks for frame in problem.frames(stack) if frame.code is turn.code]
    found = [s for f in frames if (s := within(turn.code, turn.body, f.statement)) is not None]
    return max(found, key=turn.body.index, default=None)
