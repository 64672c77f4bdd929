"""Batch norm in training mode saves running statistics that its backward never reads: a write past the version counter
disturbs nothing.

for name, buffer in net.named_buffers():      for name, buffer in net.named_buffers():
    buffer.copy_(synced[name])                    buffer.data.copy_(synced[name])
"""

from __future__ import annotations

from collections.abc import Iterator

from ...message import message
from ..analysis.targets import site
from ..problem import Problem
from ..proposal import Proposal
from ..registry import register

_WHY = message("why_running_statistics")


@register("modified")
def training_statistics(problem: Problem) -> Iterator[Proposal]:
    save, spot = problem.clash.save, next(iter(problem.write_stack), None)
    write = site(problem, spot) if spot is not None else None
    if save is None or "BatchNorm" not in (save.node or "") or write is None or write.root is None:
        return
    code, name = write.code, f"{write.root_text}.data"
    text = code.apply(code.replace(write.root, name))
    yield Proposal(
        title=" ".join(text.splitlines()[write.statement.lineno - 1].split()),
        why=_WHY,
        form="training_statistics",
        texts={code.cell.number: text},
        lossless=True,
    )
