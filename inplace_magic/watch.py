"""Watching code while it runs for real: ``%%autograd_check`` for a cell, ``inplace_magic.check()`` for a program.

Nothing is run twice and no value is changed. What backward reads is compared with what was saved; where they differ,
the gradient is wrong although nothing was raised.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .diagnosis import Conflict, Diagnosis
from .explain import conflicts
from .places import Cell, Sources
from .rerun.evidence import Evidence
from .rerun.gradients import GradientTrace
from .rerun.names import Names, graph_holders
from .rerun.replay import clashes_of
from .rerun.running import run_cell_shown
from .rerun.watcher import Watcher

if TYPE_CHECKING:
    from .extension import Extension


class SilentGradientError(RuntimeError):
    """Raised in strict mode when a gradient is silently wrong. ``findings`` are the conflicts."""

    def __init__(self, message: str, findings: tuple[Conflict, ...] = ()) -> None:
        super().__init__(message)
        self.findings = findings


@dataclass
class Check:
    """What a watched block showed. ``findings`` is filled when the block is over; ``saves``, ``writes`` and
    ``backwards`` count what was watched, ``seconds`` is how long the block took."""

    findings: tuple[Conflict, ...] = ()
    saves: int = 0
    writes: int = 0
    backwards: int = 0
    seconds: float = 0.0
    evidence: Evidence | None = field(default=None, repr=False)
    blind: bool = field(default=False, repr=False)  # a backward went through a graph that is older than the watch

    @property
    def summary(self) -> str:
        return (
            f"{self.saves} saved tensors, {self.writes} in-place writes, {self.backwards} backwards watched "
            f"in {self.seconds:.1f} s"
        )


@contextlib.contextmanager
def watching(sources: Sources, namespace: dict[str, Any], backwards: int | None = None) -> Iterator[Check]:
    """Watches what runs inside. After ``backwards`` backwards the rest runs unwatched."""
    watcher = Watcher(sources)
    old = {node for _, node in graph_holders(namespace)}
    trace = GradientTrace(sources, around=watcher.around_backward, digests=False, graphs=bool(old))
    seen = Check()
    start = time.perf_counter()

    def done(count: int, event: Any) -> bool:
        seen.blind = seen.blind or bool(old and trace.walked(old))
        if backwards is not None and count >= backwards:
            watcher.leave()
        return False

    trace.enough = done
    try:
        with contextlib.ExitStack() as ears:
            ears.enter_context(trace.listening())
            watcher.on_leave = ears.close
            with watcher:
                yield seen
    finally:
        seen.seconds = time.perf_counter() - start
        names = Names(namespace)
        seen.evidence = Evidence((), False, clashes_of(watcher, names), trace.passes(names.of))
        seen.saves, seen.writes = watcher.counts["saves"], watcher.counts["writes"]
        seen.backwards = len(seen.evidence.passes)
        silent = tuple(c for c in seen.evidence.clashes if c.kind == "silent")
        if silent:
            seen.findings = conflicts(seen.evidence, "silent", sources, ())


@contextlib.contextmanager
def check(*, strict: bool = False, backwards: int | None = None) -> Iterator[Check]:
    """Watches a block of a program for gradients that are silently wrong.

        with inplace_magic.check() as seen:
            train_step()
        assert not seen.findings

    ``strict`` raises SilentGradientError at the end of the block if there is a finding. ``backwards`` is how many
    backwards are watched (all, if None); the rest of the block runs at full speed.
    """
    sources = Sources({}, {}, None)
    with watching(sources, {}, backwards) as seen:
        yield seen
    if strict and seen.findings:
        raise SilentGradientError(_text(seen), seen.findings)


def _text(seen: Check) -> str:
    first = seen.findings[0]
    where = [f"changed at {first.changed.label}" if first.changed else "", f"saved at {first.saved.label}" if first.saved else ""]  # fmt: skip
    return f"{first.sentence} ({', '.join(w for w in where if w)})"


def check_cell(extension: Extension, cell: int, backwards: int | None, strict: bool) -> None:
    """Runs a cell of the shell, watched, and reports. What the cell raises is let through, and explained."""
    shell, session = extension.shell, extension.session
    sources = session.sources(cell)
    text: Cell = sources.cells[cell]
    with watching(sources, shell.user_ns, backwards) as seen:
        try:
            run_cell_shown(shell, text)
        except BaseException:
            extension.watched = seen
            raise
    session.seconds[cell] = seen.seconds
    found: Diagnosis | None = None
    with extension.one_line_if_it_fails():
        found = _examine(extension, cell, seen)
        if found is None:
            print(f"autograd check: nothing found. {seen.summary}.")
        else:
            extension.remember(found)
            extension.show(found)
    if found is not None and strict:
        raise SilentGradientError(found.sentence, found.conflicts)


def _examine(extension: Extension, cell: int, seen: Check) -> Diagnosis | None:
    from .pipeline import diagnose_silent

    if not seen.findings and not seen.blind:
        return None
    assert extension.magics is not None
    watched = seen.evidence if seen.findings else None
    return diagnose_silent(extension.session, cell, extension.magics.options(), watched)
