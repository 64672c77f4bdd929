"""A backward goes to the parameters alone that its optimizer steps: what else its loss hangs together with is left alone.

values = torch.zeros(agents, steps)       # one buffer for the graphs of all agents
for i in range(agents):                   for i in range(agents):
    loss = f(values[i])                       loss = f(values[i])
    loss.backward()                           loss.backward(inputs=list(critics[i].parameters()))
    optimizers[i].step()                      optimizers[i].step()
"""

from __future__ import annotations

from collections.abc import Iterator

from ...gradients.compare import leaves_reached, stepped_first
from ...message import message
from ...source.dataflow import is_step
from ..analysis.backward_calls import limited
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_limited")


@register("modified", "second_backward")
def limit_backward(problem: Problem) -> Iterator[Proposal]:
    cause, write = problem.clash.cause, problem.clash.write
    again = problem.clash.kind == "second_backward"
    if cause is None or (cause.stack != problem.need_stack if again else write is None or write.origin != "optim"):
        return
    if not _steps_apart(problem):
        return
    for frame in problem.frames(problem.need_stack)[::-1]:
        code, statement = frame.code, frame.statement
        block = code.block(statement)
        step = next((s for s in block[block.index(statement) :] if is_step(s)), None)
        if step is not None:
            edits = limited(problem, code, statement, step, keep=again)
            if edits:
                title = " ".join(code.edited(statement, edits).split())
                yield in_one_text(code, edits, title, _WHY, "limit_backward")
            return


def _steps_apart(problem: Problem) -> bool:
    """Whether the failing backward gives a gradient to nothing but what is stepped next, and that was not stepped before it.
    False if that is not known."""
    passes, at = problem.evidence.passes, problem.clash.need.index if problem.clash.need is not None else 0
    reached = leaves_reached(passes[at : at + 1])
    later = stepped_first(passes[at:])
    return bool(reached) and reached <= later and not stepped_first(passes[:at][::-1]) & later
