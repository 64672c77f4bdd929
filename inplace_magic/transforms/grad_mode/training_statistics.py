"""Batch norm in training mode saves running statistics that its backward never reads: a write past the version counter
disturbs nothing.

for name, buffer in net.named_buffers():      for name, buffer in net.named_buffers():
    buffer.copy_(synced[name])                    buffer.data.copy_(synced[name])
"""

from __future__ import annotations

from collections.abc import Iterator

from ...message import message
from ..analysis.targets import written
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_running_statistics")


@register("modified")
def training_statistics(problem: Problem) -> Iterator[Proposal]:
    save, write = problem.clash.save, written(problem)
    if save is None or "BatchNorm" not in (save.node or "") or write is None or write.root is None:
        return
    edit = write.code.replace(write.root, f"{write.root_text}.data")
    title = write.code.edited(write.statement, [edit])
    yield in_one_text(write.code, [edit], title, _WHY, "training_statistics", lossless=True)
