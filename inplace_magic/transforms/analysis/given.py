"""The forward of a Function that saves what it has overwritten, although its backward wants what it was given.

def forward(ctx, x):                  def forward(ctx, x):
    x *= torch.sigmoid(x)                 ctx.save_for_backward(x)
    ctx.save_for_backward(x)              x = x * torch.sigmoid(x)
    return x.clone()                      return x.clone()

Such a save is always recorded behind its write; that of any other conflict comes before it.
"""

from __future__ import annotations

from ...source.blocks import within
from ...source.dataflow import binds, reads
from ...source.editor import Edit
from ...source.lift import lift
from ..problem import Problem
from .targets import Site


def wants_given(problem: Problem) -> bool:
    """Whether the value that is wanted is the one from before a write, behind which it is saved."""
    save, write = problem.clash.save, problem.clash.write
    return problem.family == "silent" and save is not None and write is not None and save.clock > write.clock


def saved_first(problem: Problem, write: Site, *lines: str) -> tuple[Edit, ...]:
    """The edits by which the saving statement, and then these lines, come ahead of the write; none where it has to stay."""
    code, frames = write.code, problem.saved[-1:] if wants_given(problem) else []
    for save in (frame.statement for frame in frames if frame.code is code):
        block = code.block(save)
        first = within(code, block, write.statement)
        if first is None or first is save or not code.alone(save):
            continue
        bound = {name for s in block[block.index(first) : block.index(save)] for name in binds(s)}
        if not (bound - {write.root_text}) & reads(save):
            lifted = lift(code, [save])
            return (*lifted.edits, code.insert_before(first, *lifted.lines, *lines))
    return ()
