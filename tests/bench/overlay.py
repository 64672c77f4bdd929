"""What it costs a rerun to have files of its own, where it writes none."""

from __future__ import annotations

import os
import resource
import statistics
import time
from collections.abc import Iterator
from typing import Any

from inplace_magic.sandbox import Policy, Sandbox

from ..cells import new_shell
from .measure import Figure


class _Backward:
    """Work that writes no file."""

    def __call__(self, shell: Any, tell: Any = None) -> int:
        import torch

        torch.ones(3, requires_grad=True).exp().sum().backward()
        return 1


def overlay(quick: bool) -> Iterator[Figure]:
    """Copies of the process with and without private files, in turns; the median of the differences."""
    import torch

    torch.set_num_threads(1)
    if not hasattr(os, "fork"):
        return
    shell = new_shell()
    rounds = 1 if quick else 30
    kinds = [Sandbox(shell, Policy("fork", allow_side_effects=allowed)) for allowed in (True, False)]
    seen = [[_costs(kind) for kind in kinds] for _ in range(rounds + 1)][1:]
    wall, processor = ([(own[i] - plain[i]) * 1e3 for plain, own in seen] for i in range(2))
    yield Figure(
        "private files, for a rerun that writes none",
        statistics.median(wall),
        5,
        "ms",
        "three system calls for each file system; a network of its own",
        {"processor_ms": statistics.median(processor)},
    )


def _costs(sandbox: Sandbox) -> tuple[float, float]:
    """Seconds on the clock, and of the processor in the copy."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    outcome = sandbox.run(_Backward(), 60)  # type: ignore[arg-type]
    took, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert outcome.failure is None and outcome.refused is None, outcome
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
