"""Watching code while it runs for real: ``%%autograd_check`` for a cell, ``inplace_magic.check()`` for a program.

Nothing is run twice and no value is changed. What backward reads is compared with what was saved; where they differ,
the gradient is wrong although nothing was raised.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .diagnosis import Conflict, Diagnosis
from .explain.conflicts import conflicts
from .gradients.backward import GradientTrace
from .message import message
from .record import compiled
from .record.compiled import uncompiled
from .record.conflict_records import records_of, spots
from .record.evidence import Evidence
from .record.listeners import Listeners
from .record.own_warnings import OwnWarnings
from .record.watcher import Watcher
from .report.printing import say
from .session.names import Names, graph_holders
from .session.run_cell import can_run, run_cell_shown
from .source.document import CellSource
from .source.location import error_stack
from .source.sources import Sources

if TYPE_CHECKING:
    from .session.host import Host, Watched


MEMORY_MB = 1024.0
_OURS = tuple(os.path.join(os.path.dirname(__file__), folder, "") for folder in ("record", "gradients"))


class SilentGradientError(RuntimeError):
    """Raised in strict mode when a gradient is silently wrong. ``findings`` are the conflicts."""

    def __init__(self, message: str, findings: tuple[Conflict, ...] = ()) -> None:
        super().__init__(message)
        self.findings = findings


@dataclass
class Check:
    """What a watched block showed. ``findings`` is filled when the block is over, and ``detached``, where nothing is
    found and all of it was watched, with what an optimizer steps although a line detaches it from the loss, which may be
    meant so. ``saves``, ``writes`` and
    ``backwards`` count what was watched, ``seconds`` is how long the block took. ``unkept`` counts the values that
    were overwritten and could not be kept, so that nothing can be said about them, ``unchecked`` by kind what is not
    looked at at all. ``warnings`` are single lines about graphs that are kept for nothing."""

    findings: tuple[Conflict, ...] = ()
    detached: tuple[Conflict, ...] = ()
    warnings: tuple[str, ...] = ()
    saves: int = 0
    writes: int = 0
    backwards: int = 0
    seconds: float = 0.0
    unkept: int = 0
    unchecked: Mapping[str, int] = field(default_factory=dict)
    evidence: Evidence | None = field(default=None, repr=False)
    # A backward went through a graph that is older than the watch, or what it met needs a reference run: a replay knows more.
    blind: bool = field(default=False, repr=False)
    ended_early: bool = field(default=False, repr=False)  # by the number of backwards, or of seconds
    compiled: bool = field(default=False, repr=False)  # torch.compile has compiled something in this process
    problem: str | None = field(default=None, repr=False)  # what failed of the watch itself, which ended it

    @property
    def summary(self) -> str:
        """What was watched, in one line."""
        if self.problem is not None:
            return message("watch_failed", problem=self.problem)
        counts = {"saves": self.saves, "writes": self.writes, "backwards": self.backwards}
        if self.unkept:
            watched = message("watched_unkept", seconds=self.seconds, unkept=self.unkept, **counts)
        else:
            watched = message("watched", seconds=self.seconds, **counts)
        if self.compiled:
            watched = message("watched_uncompiled", watched=watched)
        if not self.unchecked:
            return watched
        kinds = tuple(message(f"unchecked_{kind}", number=number) for kind, number in self.unchecked.items())
        return message("not_checked", watched=watched, kinds=kinds)


@contextlib.contextmanager
def watching(
    sources: Sources,
    namespace: dict[str, Any],
    backwards: int | None = None,
    memory: float | None = MEMORY_MB,
    seconds: float | None = None,
) -> Iterator[Check]:
    """Watches what runs inside. After ``backwards`` backwards, or ``seconds``, the rest runs unwatched."""
    watcher = Watcher(sources, memory=None if memory is None else int(memory * 2**20))
    trace = GradientTrace(
        sources, around=watcher.around_backward, digests=False, graphs=False, shielded=watcher.shield.around
    )
    seen = Check()
    start = time.perf_counter()

    def done(count: int, event: Any) -> bool:
        late = seconds is not None and time.perf_counter() - start > seconds
        if late or (backwards is not None and count >= backwards):
            seen.ended_early = True
            watcher.leave()
        return False

    trace.enough = done
    on = contextlib.ExitStack()
    try:
        with watcher.shield:
            on.enter_context(trace.listening())
            on.enter_context(uncompiled())
            watcher.on_leave = on.close
            on.enter_context(OwnWarnings())
            on.enter_context(watcher)
        with watcher.shield:
            on.enter_context(_noticing_old_graphs(namespace, watcher, seen))
        yield seen
    except BaseException as error:
        _strip(error)
        raise
    finally:
        seen.seconds = time.perf_counter() - start
        with watcher.shield:
            on.close()
        with watcher.shield:  # never in the way of what the block has raised
            _fill(seen, watcher, trace, Names(namespace))
        seen.problem = watcher.shield.failure


@contextlib.contextmanager
def _noticing_old_graphs(namespace: Mapping[str, Any], watcher: Watcher, seen: Check) -> Iterator[None]:
    """Hooks on the graphs that the names hold already: whoever goes back through one goes where nothing was watched."""

    def went_through(gradients: Any) -> None:
        seen.blind = True

    with contextlib.ExitStack() as hooks:
        for _, node in graph_holders(namespace):
            hooks.callback(node.register_prehook(watcher.hook(went_through)).remove)
        yield


def _strip(error: BaseException) -> None:
    """Takes our own frames out of the middle of a traceback: it is the user's."""
    tb = error.__traceback__
    while tb is not None:
        following = tb.tb_next
        if following is not None and following.tb_frame.f_code.co_filename.startswith(_OURS):
            tb.tb_next = following.tb_next
        else:
            tb = following


def _fill(seen: Check, watcher: Watcher, trace: GradientTrace, names: Names) -> None:
    seen.evidence = Evidence((), False, records_of(watcher, names), trace.passes(names.of))
    seen.saves, seen.writes, seen.unkept = watcher.counts["saves"], watcher.counts["writes"], watcher.saved.unkept
    seen.backwards = len(seen.evidence.passes)
    seen.compiled = compiled.in_use()
    seen.unchecked = dict(watcher.unchecked)
    seen.warnings = _warnings(watcher)
    seen.blind = seen.blind or watcher.open_question
    kinds = {clash.kind for clash in seen.evidence.clashes}
    if "silent" in kinds:
        seen.findings = conflicts(seen.evidence, "silent", watcher.sources, ())
    elif kinds == {"detached"} and not seen.ended_early:  # what comes then may train it
        seen.detached = conflicts(seen.evidence, "silent", watcher.sources, ())


def _warnings(watcher: Watcher) -> tuple[str, ...]:
    """What is no wrong gradient and costs memory all the same."""
    said: list[str] = []
    for spot in watcher.kept_graphs.needless():
        place = watcher.sources.place(spot)
        if "retain_graph=True" in place.text:
            said.append(message("retained_needlessly", place=place.label))
    for spot, count in watcher.kept_graphs.growing().items():
        place = watcher.sources.place(spot)
        said.append(message("graphs_grow", place=place.label, count=count))
    return tuple(said)


@contextlib.contextmanager
def check(*, strict: bool = False, backwards: int | None = None, memory: float | None = MEMORY_MB) -> Iterator[Check]:
    """Watches a block of a program for gradients that are silently wrong.

        with inplace_magic.check() as seen:
            train_step()
        assert not seen.findings

    ``strict`` raises SilentGradientError at the end of the block if there is a finding. ``backwards`` is how many
    backwards are watched (all, if None); the rest of the block runs at full speed. ``memory`` is how many MB of
    overwritten values are kept at a time, at most (any number, if None).
    """
    if backwards is not None and backwards < 1:
        raise ValueError("backwards has to be 1 or more")
    with watching(_sources(), {}, backwards, memory) as seen:
        yield seen
    if seen.problem is not None:
        warnings.warn(f"inplace_magic: {seen.summary}", RuntimeWarning, stacklevel=3)
    if strict and seen.findings:
        raise SilentGradientError(_text(seen), seen.findings)


def _sources() -> Sources:
    """The cells of the shell that this runs in, if it runs in one; files need none."""
    if "IPython" in sys.modules:
        from IPython.core.getipython import get_ipython

        shell = get_ipython()
        if shell is not None:
            from .session.history import Session

            return Session(shell).sources(int(shell.execution_count))
    return Sources({}, {}, None)


def _text(seen: Check) -> str:
    first = seen.findings[0]
    where = [f"{how} at {place.label}" for how, place in (("changed", first.changed), ("saved", first.saved)) if place]
    return f"{first.sentence} ({', '.join(where)})" if where else first.sentence


def check_cell(
    extension: Host, cell: int, backwards: int | None, strict: bool, memory: float, quiet: bool = False
) -> None:
    """Runs a cell of the shell, watched, and reports. What the cell raises is let through, and explained.

    ``quiet``: that nothing was found is not said.
    """
    __tracebackhide__ = True
    from IPython.core.error import UsageError

    shell, session = extension.shell, extension.session
    sources = session.sources(cell)
    text = sources.cells[cell]
    assert isinstance(text, CellSource)
    if "autograd_check" not in text.magics:
        raise UsageError(extension.said(message("check_on_top")))
    if not can_run(shell, text):
        raise UsageError(extension.said(message("check_await")))
    listeners = Listeners()
    seen = Check()
    try:
        with watching(sources, shell.user_ns, backwards, memory) as seen:
            try:
                run_cell_shown(shell, text, text.below("autograd_check"))
            except BaseException:
                extension.watched = seen
                raise
    except BaseException:
        listeners.take_off()
        raise
    finally:
        if seen.problem is not None:
            say(extension.said(message("check_failed", problem=seen.problem)))
    session.seconds[cell] = session.busy[cell] = seen.seconds
    found: Diagnosis | None = None
    with extension.one_line_if_it_fails():
        known = seen.findings or seen.detached
        found = _explained(extension, cell, seen.evidence if known else None) if known or seen.blind else None
        if found is None and seen.problem is None and not quiet:
            say(extension.said(message("check_nothing", watched=seen.summary)))
            if not seen.backwards and not seen.unchecked:
                say("  " + extension.said(message("check_no_backward")))
        for warning in seen.warnings:
            say(f"  {extension.said(warning)}")
    if found is not None and strict and not found.may_be_meant:
        raise SilentGradientError(found.sentence, found.conflicts)


def explain_failure(extension: Host, cell: int, seen: Watched, error: Exception) -> None:
    """Reports what a watched cell died of, where that is no error of torch's: a gradient that is None on the very line."""
    evidence, sources = seen.evidence, extension.session.sources(cell)
    raised = {(spot.cell, spot.line) for spot in spots(error_stack(error), sources)[:1]}
    clashes = tuple(
        one
        for one in (evidence.clashes if evidence is not None else ())
        if one.write is not None and one.write.how == "unreached"
        if one.save is not None and one.save.spot is not None and (one.save.spot.cell, one.save.spot.line) in raised
    )
    if evidence is not None and clashes:
        _explained(extension, cell, replace(evidence, clashes=clashes))


def _explained(extension: Host, cell: int, watched: Evidence | None) -> Diagnosis | None:
    """Reports what is silently wrong in a cell; gives that back, or None."""
    from .pipeline import diagnose_silent

    found = diagnose_silent(extension.session, cell, extension.options(), watched)
    if found is not None:
        extension.remember(found)
        extension.show(found)
    return found
