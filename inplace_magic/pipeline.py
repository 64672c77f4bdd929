"""From an error to a diagnosis: recognise, rerun, explain, propose, verify. Nothing here touches the session."""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from .diagnosis import Conflict, Diagnosis, Fix, shown_path
from .explain.conflicts import conflicts, relevant
from .explain.post_mortem import LiveGraph, look
from .families import RAISED_AT_WRITE, family_of
from .gradients.relative_error import deviations, in_words
from .message import kind_of, message
from .options import Options
from .record.conflict_records import spots
from .record.evidence import Evidence, RecordedConflict
from .record.graph_holders import shape_of
from .record.operations import RESHAPES
from .record.plan import RecordOptions
from .record.requests import ListenRequest
from .reproduce import Reproduction, Rerun
from .sandbox import Sandbox, process_group
from .session.history import Session
from .session.user_objects import walk
from .source import atomic_write
from .source.document import FileSource, is_cell
from .source.files import path_of
from .source.location import SourceRange, error_stack
from .source.own import own_names
from .source.sources import Sources
from .transforms.problem import Problem
from .transforms.proposal import Reading
from .verify import Bench, best

_log = logging.getLogger(__name__)

# The headlines that are not their family's, by the sentence on the first conflict.
_HEADLINES = {
    "silent_aliased": "headline_aliased",
    "unreached": "headline_unreached",
    "unreached_may_be": "headline_unreached",
    "detached_part": "headline_detached",
    "constant_term": "headline_constant",
    "discarded": "headline_discarded",
    "discarded_partly": "headline_discarded",
}


def diagnose(
    session: Session,
    error: BaseException,
    cell: int,
    options: Options,
    tell: Callable[[str], None] = lambda text: None,
    watched: Evidence | None = None,
    publish: Callable[[Diagnosis], None] = lambda found: None,
) -> Diagnosis | None:
    """Everything that can be found out about an error, or None if it is not of our families.

    ``watched`` is what was seen in the failing run itself, if somebody was watching it. ``publish`` is given what is
    known so far, under the same id: as soon as the lines are known, and again with each fix that is verified. Ctrl-C
    from then on ends the search for fixes, and what is known by then is returned.
    """
    family = family_of(error)
    if family is None:
        return None
    sources = session.sources(cell, error)
    raised = spots(error_stack(error), sources)
    left = partial(_left_behind, error, session, sources)
    return _Inquiry(session, sources, family, cell, raised, options, tell, left, publish, error=error).answer(watched)


def _left_behind(error: BaseException, session: Session, sources: Sources) -> LiveGraph | None:
    """What the graph after the failure tells; None if looking at it goes wrong."""
    try:
        return look(error, session.shell.user_ns, sources)
    except Exception as problem:
        _log.debug("the graph could not be looked at: %s", problem)
        return None


def diagnose_silent(
    session: Session,
    cell: int,
    options: Options,
    watched: Evidence | None,
    tell: Callable[[str], None] = lambda text: None,
) -> Diagnosis | None:
    """The diagnosis of a cell that ran without an error and has a gradient that is wrong; None if it has not.

    ``watched`` is what was seen while it ran; None if what its backwards read was saved before that, so that only a
    replay can tell.
    """
    sources = session.sources(cell)
    inquiry = _Inquiry(session, sources, "silent", cell, (), options, tell)
    return inquiry.answer(watched, certain=watched is not None)


@dataclass
class _Inquiry:
    """One error under examination; ``fixes``, ``notes`` and ``off`` are what is known by now."""

    session: Session
    sources: Sources
    family: str
    cell: int
    raised: tuple[SourceRange, ...]
    options: Options
    tell: Callable[[str], None]
    left_behind: Callable[[], LiveGraph | None] = lambda: None
    publish: Callable[[Diagnosis], None] = lambda found: None
    start: float = field(default_factory=time.monotonic)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    error: BaseException | None = None
    fixes: tuple[Fix, ...] = ()
    notes: list[str] = field(default_factory=list)
    off: dict[str, float] | None = None  # how far the gradients are, where that was measured

    def answer(self, watched: Evidence | None, certain: bool = True) -> Diagnosis | None:
        """The diagnosis. None if nothing is known and it is not certain that there is anything."""
        with Sandbox(self.session.shell, self.options.policy) as sandbox, contextlib.ExitStack() as running:
            again = Reproduction(
                self.session,
                self.sources,
                self.cell,
                self.family,
                self.options,
                self.tell,
                sandbox,
                running,
                self.error,
                self._tell_lines,
            )
            return self._answer(watched, certain, again)

    def _answer(self, watched: Evidence | None, certain: bool, again: Reproduction) -> Diagnosis | None:
        reason = _why_not(self.session, self.options, self.sources, self.cell) or _cannot_serve(again.sandbox)
        rerun, reason = again.rerun() if reason is None else (None, reason)
        if not certain and rerun is None:
            return None
        evidence, live = None, None
        if reason is not None:
            live = None if watched is not None else self.left_behind()
            self.notes.append(self._not_rerun(reason, watched is not None, live))
        if rerun is not None:
            stands_on = again.stands_on(rerun.plan)
            if not self._search(rerun, again, watched):
                return None
            stopped = any(kind_of(note) == "stopped" for note in self.notes)  # then nothing more is waited for
            self.family, evidence = _as_leaf(self.family, rerun.seen if stopped else rerun.whole or rerun.seen)
            self.notes += stands_on
        seen = _better(watched, evidence, self.family)
        found = conflicts(seen, self.family, self.sources, self.raised, live)
        self.notes += _about_files(self.session, found, self.fixes)
        if again.sandbox.on_cpu and self.fixes:
            self.notes.append(message("verified_on_cpu"))
        return self._diagnosis(found)

    def _tell_lines(self, seen: Evidence) -> None:
        """The lines by themselves, while the run that tells them goes on."""
        self.family, seen = _as_leaf(self.family, seen)
        self.publish(self._diagnosis(conflicts(seen, self.family, self.sources, self.raised)))

    def _search(self, rerun: Rerun, again: Reproduction, watched: Evidence | None) -> bool:
        """Looks for fixes. False if what was changed plays no part in any gradient, so that there is nothing to say."""
        self.family, evidence = _as_leaf(self.family, rerun.seen)
        if evidence.inference_tensors and self.family == "inference":
            # What a rerun has come to hold need not be in the session, where nobody is asked for an attribute.
            here = {path for path, _ in walk(self.session.shell.user_ns)}
            kept = tuple(path for path in evidence.inference_tensors if path in here)
            evidence = replace(evidence, inference_tensors=kept)
        known = relevant(evidence, self.family)
        if rerun.stopped:
            self.notes.append(message("stopped"))
        if not known or rerun.stopped:
            return True
        bench = self._bench(rerun, again)
        if self.family == "silent":
            self.off = self._measure(bench, rerun)
            if self.off is not None and not self.off and not _certain(watched, known[0]):
                return False
        problem = Problem(self.family, known[0], evidence, self.sources, self.cell, self.raised)
        lines = conflicts(evidence, self.family, self.sources, self.raised)

        def tried(found: tuple[Fix, ...]) -> None:
            self.fixes = found
            self.publish(self._diagnosis(lines))

        try:
            tried(())
            self.fixes = best(bench, problem, self.options.fixes, tried)
        except KeyboardInterrupt:
            self.notes.append(message("stopped"))
        if not self.fixes and not self.notes:
            self.notes.append(_no_fix(bench, known[0]))
        return True

    def _bench(self, rerun: Rerun, again: Reproduction) -> Bench:
        """Where rewrites are verified: as the failure was reproduced, in the same sandbox."""
        own: Reading | None = None
        look = RecordOptions.at(self.family, self.raised)
        if self.family in RAISED_AT_WRITE:
            own = "update" if look.update_leaves else "tracked"
        return Bench(
            sandbox=again.sandbox,
            sources=self.sources,
            plan=rerun.plan,
            look=look,
            tell=self.tell,
            failing=self.cell,
            limit_s=again.limit(rerun.plan),
            reach=rerun.reach,
            own=own,
            recorded=lambda: rerun.whole,
            # A shape that was changed in place is that of a copy in the recorded run.
            faithful=rerun.faithful and not any(c.write and c.write.operation in RESHAPES for c in rerun.seen.clashes),
            long=rerun.rest is not None,
            carrying=frozenset(name for name, value in own_names(self.session.shell.user_ns) if shape_of(value)),
        )

    def _diagnosis(self, found: tuple[Conflict, ...]) -> Diagnosis:
        """What is known now, as a record."""
        if self.off:
            found = (replace(found[0], needed_note=in_words(self.off)), *found[1:])
        first = kind_of(found[0].sentence) if found else None
        return Diagnosis(
            family=self.family,
            headline=message(_HEADLINES.get(first or "", f"headline_{self.family}")),
            cell=self.cell if is_cell(self.cell) else None,
            conflicts=found,
            fixes=self.fixes,
            notes=tuple(self.notes),
            sources={
                n: self.sources.cells[n].raw
                for n in _mentioned(self.cell, found, self.fixes)
                if is_cell(n) and n in self.sources.cells
            },
            cell_ids=dict(self.session.cell_ids),
            files=_rewritten(self.sources, self.fixes),
            seconds=time.monotonic() - self.start,
            off=self.off or {},
            id=self.id,
        )

    def _not_rerun(self, reason: str, watched: bool, live: LiveGraph | None) -> str:
        """Why there was no rerun, and what the report is based on instead."""
        what = message("the_cell" if is_cell(self.cell) else "the_script")
        if watched:
            return message("not_rerun_watched", what=what, reason=reason)
        basis = message("basis_graph" if live is not None and live.nodes else "basis_error")
        can_watch = self.options.rerun and is_cell(self.cell) and self.cell in self.sources.cells
        return message("not_rerun_watch" if can_watch else "not_rerun", what=what, reason=reason, basis=basis)

    def _measure(self, bench: Bench, rerun: Rerun) -> dict[str, float] | None:
        """How far off the gradients are; empty if they are right; None if that cannot be told."""
        plain = bench.run(ListenRequest(self.sources, rerun.plan, bench.reach, bench.look))
        off = None if plain is None else deviations(plain.passes, rerun.seen.passes)
        if plain is not None and off:
            bench.wrong = plain.passes
        return off


def _certain(watched: Evidence | None, first: RecordedConflict) -> bool:
    return watched is not None and any(c.certain and c.kind in ("silent", first.kind) for c in watched.clashes)


def _as_leaf(family: str, seen: Evidence) -> tuple[str, Evidence]:
    """torch calls a leaf a view where it lives in another's memory; it is a leaf all the same."""
    known = relevant(seen, family)
    if family != "view_of_leaf" or not known or known[0].write is None or not known[0].write.leaf:
        return family, seen
    return "leaf", replace(seen, clashes=(replace(known[0], family="leaf"), *known[1:]))


def _better(watched: Evidence | None, replayed: Evidence | None, family: str) -> Evidence | None:
    """The run to report on: the real one, unless only the replay has the line that wrote."""
    ours = relevant(watched, family) if watched is not None else []
    theirs = relevant(replayed, family) if replayed is not None else []
    if not ours:
        return replayed
    unknown = ours[0].write is None or not ours[0].write.stack
    return replayed if unknown and theirs and theirs[0].write is not None and theirs[0].write.stack else watched


def _why_not(session: Session, options: Options, sources: Sources, cell: int) -> str | None:
    if not options.rerun:
        return message("reruns_off")
    if cell not in sources.cells:
        return message("no_source")
    return None


def _cannot_serve(sandbox: Sandbox) -> str | None:
    """Why nothing can be run again, known at once."""
    return sandbox.closed() or (process_group.cannot_serve() if sandbox.is_copy else None)


def _no_fix(bench: Bench, clash: RecordedConflict) -> str:
    """Why none was found."""
    if bench.refused:
        return message("rewrites_refused", reason=bench.refused[-1])
    if bench.tried:
        return message("rewrites_failed")
    places = [event.spot for event in (clash.write, clash.save, clash.need) if event is not None]
    elsewhere = all(place is None or place.cell is None for place in places)
    return message("rewrites_elsewhere") if elsewhere else message("rewrites_unknown")


def _mentioned(cell: int, found: tuple[Conflict, ...], fixes: tuple[Fix, ...]) -> set[int]:
    places = {p.cell for c in found for p in (c.changed, c.saved, c.needed) if p is not None and p.cell is not None}
    return {cell} | places | {n for f in fixes for n in (*f.cells, *f.run)}


def _rewritten(sources: Sources, fixes: tuple[Fix, ...]) -> dict[str, str]:
    """The texts, as they were diagnosed, of the files that fixes rewrite."""
    paths = {path for fix in fixes for path in fix.files}
    return {c.path: c.raw for c in sources.cells.values() if isinstance(c, FileSource) and c.path in paths}


def _about_files(session: Session, found: tuple[Conflict, ...], fixes: tuple[Fix, ...]) -> list[str]:
    """What a person should know about files that places lie in or that a fix rewrites."""
    places = [p for c in found for p in (c.changed, c.saved, c.needed) if p is not None and p.filename is not None]
    stale = {
        shown_path(p.filename) for p in places if p.filename is not None and path_of(p.filename) in session.files.stale
    }
    notes: list[str] = [message("file_changed", file=name) for name in sorted(stale)]
    for path in sorted({path for fix in fixes for path in fix.files}):
        reason = atomic_write.outside(path)
        if reason is not None:
            notes.append(message("file_not_written", file=shown_path(path), reason=reason))
    return notes
