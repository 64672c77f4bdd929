"""What a list or dict holds of the memory of other tensors is copied where it is put there.

ema = {n: p.detach() for n, p in named}   ema = {n: p.detach().clone() for n, p in named}
shadow[n] = p.data                        shadow[n] = p.data.clone()
before = net.state_dict()                 before = {key: value.clone() for key, value in net.state_dict().items()}
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.dataflow import called_name
from ...source.editor import Code, Edit
from ..analysis.contents import container, put_into, shares
from ..analysis.meant import reads_itself
from ..analysis.meetings import updates_weights
from ..analysis.targets import written_here
from ..problem import Problem
from ..proposal import Proposal
from ..registry import register
from .clone_alias import copied, is_detached

_WHY = message("why_memory_apart")


@register("modified", "silent")
def clone_items(problem: Problem) -> Iterator[Proposal]:
    write = written_here(problem)
    name = container(write) if write is not None else None
    if write is None or name is None:
        return
    itself = reads_itself(write)
    if updates_weights(problem) and not itself:
        return  # an update, by another look at what it updates
    put = [
        (code, value, edit)
        for code, value in put_into(problem, write, name)
        if (edit := _copied(code, value)) is not None
    ]
    for code, value, edit in put[:1]:
        title = " ".join(code.edited(code.statement(value), [edit]).split())
        edits = tuple((where, one) for where, _, one in put)
        form = "clone_alias: of itself" if itself else "clone_alias"
        yield Proposal(title, _WHY, form, edits, meant=itself or is_detached(value))


def _copied(code: Code, value: ast.expr) -> Edit | None:
    if called_name(value) == "state_dict":
        return code.replace(value, f"{{key: value.clone() for key, value in {code.text(value)}.items()}}")
    return copied(code, value) if shares(value) else None
