"""Memory that several elements of a tensor share, or that a write also reads, is copied before it is written.

rows = bias.expand(4, 3)          rows = bias.expand(4, 3).clone()
x[1:] = x[:-1]                    x[1:] = x[:-1].clone()
x[t] = turn(x[t])                 x[t] = turn(x[t]).clone()
x -= x[:, :1]                     x -= x[:, :1].clone()
live[live] = fooled               live[live.clone()] = fooled
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.dataflow import called_name, calls_named, given_to
from ..analysis.contents import OWN_MEMORY
from ..analysis.targets import Site, root_text, seen_through, written_here
from ..problem import Problem
from ..proposal import Proposal, each_then_all, in_one_text
from ..registry import register
from .clone_alias import WHY, copied

_READ = message("why_copy_is_read")
_SPREADS = frozenset({"expand", "expand_as", "broadcast_to", "broadcast_tensors", "as_strided", "unfold"})


@register("silent")
def clone_what_is_read(problem: Problem) -> Iterator[Proposal]:
    """The part of itself that a tensor is written from, where torch does not refuse that."""
    write = written_here(problem)
    if write is not None and write.event.how == "overlaps":
        yield from _shifted(write)


@register("overlap")
def clone_overlapping(problem: Problem) -> Iterator[Proposal]:
    write = written_here(problem)
    if write is not None:
        yield from _shifted(write)
    for code in problem.codes():
        calls = calls_named(code.tree, *_SPREADS)
        spread = [one for one in calls if getattr(code.parent(one), "attr", "") not in OWN_MEMORY]
        for some in each_then_all(spread):
            edits = [copied(code, one) for one in some]
            yield in_one_text(code, edits, edits[0].text, WHY, "clone_alias")


def _shifted(write: Site) -> Iterator[Proposal]:
    """A tensor is written from another stretch of itself, or where it says itself."""
    code, ran = write.code, write.expression
    places, value = getattr(write.target, "slice", None), getattr(write.statement, "value", None)
    # What a write reads as it is; anything computed has memory of its own.
    read = [*getattr(places, "elts", [places]), *(given_to(ran) if isinstance(ran, ast.Call) else [value])]
    looked_at = _origin(write, write.root)
    parts = [one for one in read if _origin(write, one) == looked_at is not None]
    # What a function gives may be another look at what it is handed.
    calls = [one for one in read if isinstance(one, ast.Call) and called_name(one) not in OWN_MEMORY]
    handed = [one for one in calls if looked_at in [_origin(write, argument) for argument in given_to(one)]]
    parts = parts or (handed if looked_at is not None else [])
    for chosen in each_then_all(parts):
        yield in_one_text(code, [copied(code, part) for part in chosen], write.statement, _READ, "clone_alias")


def _origin(write: Site, node: ast.expr | None) -> str | None:
    """The name behind an expression that looks at memory: for `b`, after `b = x[1:]`, it is `x`."""
    name = root_text(write.code, node)
    return name and (seen_through(write.code, name, write.statement) or name)
