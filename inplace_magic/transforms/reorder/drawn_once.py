"""What several elements share is drawn before it is expanded: they are to share the numbers as well.

mask = x.new_empty(1, n).expand_as(x)     mask = x.new_empty(1, n)
mask.bernoulli_(keep)                     mask.bernoulli_(keep)
                                          mask = mask.expand_as(x)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...record.operations import SAMPLERS
from ...source.bindings import bindings, reads
from ..analysis.targets import is_whole, root, written_here
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register


@register("overlap")
def drawn_once(problem: Problem) -> Iterator[Proposal]:
    write = written_here(problem)
    if write is None or write.event.operation not in SAMPLERS or not is_whole(write):
        return
    code, name = write.code, getattr(write.target, "id", "")
    made = next(iter(bindings(code, name, write.statement)), None)
    behind = code.following(made.statement) if made is not None else []
    if made is None or write.statement not in behind:
        return
    match made.value:
        case ast.Call(ast.Attribute(ast.Call() as whole, "expand" | "expand_as")) as spread if root(whole) is None:
            line = f"{name} = {name}{code.text(spread).removeprefix(code.text(whole))}"
            edits = [code.replace(spread, code.text(whole)), code.insert_after(write.statement, line)]
            title = message("title_after", what=f"`{line}`", other=message("the_write"))
            if not reads(code, name, [*behind[: behind.index(write.statement)]]):
                yield in_one_text(code, edits, title, message("why_drawn_once"), "drawn_once")
