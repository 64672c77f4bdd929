"""Views that were made at once, or without gradients, are made again once their base has been written.

mean, logvar = moments.chunk(2, 1)         moments[:, half:].clamp_(-30, 20)
moments[:, half:].clamp_(-30, 20)          mean, logvar = moments.chunk(2, 1)

Where they are used before the write, they are made twice.

with torch.no_grad():
    tail = h.view(-1)                      tail = h.view(-1)
tail.add_(1)                               tail.add_(1)

A loop that writes what it goes through goes through a copy: its views are read on.

for i, row in enumerate(x):                for i, row in enumerate(x.clone()):
    x[i] = row / row.sum()                     x[i] = row / row.sum()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...families import is_of_base
from ...message import message
from ...source.bindings import reads
from ...source.blocks import loops, own_statements, scope, upwards, within
from ...source.dataflow import binds, given_to, receiver
from ...source.dataflow import reads as names_read
from ...source.editor import Code
from ...source.lift import lift, moved, unwrapped
from ..analysis.counted import is_counter
from ..analysis.meetings import headline
from ..analysis.targets import Site, root_text, seen_through, sites
from ..grad_mode.inference_mode import modes
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY, _OUTSIDE = message("why_views_again"), message("why_view_seen")


@register("multi_output_view", "no_grad_view")
def views_again(problem: Problem) -> Iterator[Proposal]:
    if not is_of_base(problem.clash.message):
        yield from _outside(problem)
        return
    for write in sites(problem, depth=2):
        code, name, last = write.code, write.root_text, write.statement
        bases = {name, seen_through(code, name, last)} - {None} if name is not None else set()
        yield from _through_copy(code, write, name)
        makers = (
            s for s in own_statements(code, scope(code, last)) if isinstance(s, ast.Assign) and s.lineno < last.lineno
        )
        for maker in makers:
            made = maker.value
            if root_text(code, receiver(made) if isinstance(made, ast.Call) else made) not in bases:
                continue
            behind = code.following(maker)
            top = within(code, behind, last)  # the write may stand in an inner block
            used = top is None or any(reads(code, one, [*behind[: behind.index(top) + 1]]) for one in binds(maker))
            again = code.insert_after(top or last, *lift(code, [maker]).lines)
            edits = [again] if used else [again, code.delete(maker)]
            title = message("title_after", what=headline(code, maker), other=message("the_write"))
            yield in_one_text(code, edits, title, _WHY, "views_again")


def _through_copy(code: Code, write: Site, name: str | None) -> Iterator[Proposal]:
    """Each item is written by its own number; what wrote ahead would be meant to be read."""
    index = write.target.slice if isinstance(write.target, ast.Subscript) else None
    for loop in loops(code, write.statement):
        if not isinstance(loop, ast.For) or not isinstance(index, ast.Name) or not is_counter(loop, index.id):
            continue
        through = [loop.iter, *given_to(loop.iter)]
        for edit in [code.behind(one, ".clone()") for one in through if code.text(one) == name]:
            title = f"for {code.text(loop.target)} in {code.edited(loop.iter, [edit])}"
            yield in_one_text(code, [edit], title, message("why_through_copy"), "clone_alias: of itself")


def _outside(problem: Problem) -> Iterator[Proposal]:
    """The view that is written is made behind the block that switched gradients off, the innermost first."""
    frames = problem.saved[::-1]
    for code, maker in ((frame.code, above) for frame in frames for above in upwards(frame.code, frame.statement)):
        block = code.parent(maker)
        if not isinstance(block, ast.With) or not any(modes(block, "no_grad", "inference_mode")):
            continue
        depends = binds(*code.preceding(maker)) & (binds(maker) | names_read(maker))
        early = not depends and binds(maker) & names_read(*code.following(maker))
        title = message("title_outside", what=headline(code, maker))
        edits = moved(code, [maker], block, behind=not early) if code.alone(maker) else []
        if block.body == [maker] or (not edits and all(map(binds, block.body))):
            edits = [edit for edit in [unwrapped(code, block, block.body)] if edit is not None]
            if len(block.body) > 1:  # what else stands in the block is seen as well
                title = message("title_block_gone", block=headline(code, block).strip("`"))
        if edits:
            yield in_one_text(code, edits, title, _OUTSIDE, "views_again")
