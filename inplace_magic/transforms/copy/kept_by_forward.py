"""What a checkpoint would compute again for its backward is kept by its forward instead, for what it reads has changed.

loss = checkpoint(block, x, preserve_rng_state=False)    loss = checkpoint(block, x)
loss = checkpoint(block, x, use_reentrant=False)         loss = block(x)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.dataflow import called_name, calls_named
from ...source.editor import Code, atom
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_kept_by_forward")
_OF_TORCH = frozenset({"use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop"})


@register("silent")
def kept_by_forward(problem: Problem) -> Iterator[Proposal]:
    frames = problem.frames((*problem.write_stack[:3], *problem.save_stack[:3]))[::-1]
    calls = [(f.code, c) for f in frames for c in calls_named(f.statement, "checkpoint", "checkpoint_sequential")]
    for code, call in dict.fromkeys(calls):
        yield from _kept(code, call)


def _kept(code: Code, call: ast.Call) -> Iterator[Proposal]:
    for keyword in call.keywords:
        if keyword.arg == "preserve_rng_state" and ast.unparse(keyword.value) != "True":
            yield in_one_text(code, [code.without_argument(keyword)], call, _WHY, "kept_by_forward: random numbers")
    text = _called_itself(code, call)
    if text is not None:
        yield in_one_text(code, [code.replace(call, text)], text, _WHY, "kept_by_forward")


def _called_itself(code: Code, call: ast.Call) -> str | None:
    """The call of what the checkpoint would call."""
    given = call.args[2 if called_name(call) == "checkpoint_sequential" else 1 :]
    if not call.args or any(isinstance(argument, ast.Starred) for argument in call.args[:2]):
        return None
    others = [keyword for keyword in call.keywords if keyword.arg not in _OF_TORCH]
    return f"{atom(code, call.args[0])}({', '.join(map(code.text, [*given, *others]))})"
