"""A report by way of a replica against one by way of a fork."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import time
from collections.abc import Iterator

from ..cells import new_shell, run_in
from .cells import FAILURES, SMALL
from .measure import Figure, some

_LONGER = ("`+=` on an activation, at the first step", "two updates of a GAN, at the first step")
_FAILURES = {"a cell of three lines": (*SMALL, 1), **{name: FAILURES[name] for name in _LONGER}}


def replicas(quick: bool) -> Iterator[Figure]:
    """Each round in a process of its own, as a session's first report is: the interpreter is started for each report."""
    start = min(_start() for _ in range(1 if quick else 3))
    spawning = multiprocessing.get_context("spawn")
    with spawning.Pool(1, maxtasksperchild=1) as processes:
        for name, (setup, text, size) in some(_FAILURES, quick):
            size = max(1, size // 40) if quick else size
            cells = tuple(part.replace("{n}", str(size)) for part in (setup, text))
            rounds = 1 if quick else 3
            fork, replica = (
                min(processes.starmap(_report, [(kind, *cells)] * rounds, chunksize=1)) for kind in ("fork", "replica")
            )
            yield Figure(
                f"by a replica, less the start of an interpreter with torch, {name}",
                max(0.0, replica - start) / fork,
                3,
                "forks",
                "it imports what the session has imported, and the objects are brought over",
                {"fork_s": fork, "replica_s": replica, "start_s": start},
            )


def _start() -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return time.perf_counter() - begin


def _report(kind: str, setup: str, text: str) -> float:
    """Seconds from the error to the whole report."""
    import torch

    torch.set_num_threads(1)
    shell = new_shell()
    shell.run_line_magic("config", 'InplaceMagic.sandbox = "fork"')
    run_in(shell, [part.lstrip() for part in SMALL])  # what is imported for a first failure
    shell.run_line_magic("config", f'InplaceMagic.sandbox = "{kind}"')
    done = run_in(shell, [setup.lstrip(), text.lstrip()])
    assert done.diagnosis is not None and done.diagnosis.fixes, done.output
    return done.diagnosis.seconds
