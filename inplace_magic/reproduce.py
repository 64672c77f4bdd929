"""The failure once more: a plan of cells to run again, until the recorder has seen it."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from .explain.conflicts import relevant
from .message import message
from .options import Options
from .record import compiled
from .record.conflict_records import spots
from .record.evidence import Evidence
from .record.last_iteration import ITERATIONS, same_failure
from .record.plan import RecordOptions, ReplayPlan, StopRule
from .record.requests import RecordRequest
from .record.run_cells import resumable
from .sandbox import Sandbox, process_group
from .sandbox.fork import Outcome
from .sandbox.may_fork import devices_in_use
from .sandbox.process_memory import large
from .session.history import Session
from .source.cell_flow import makers_of, readers_of
from .source.location import SourceRange, error_stack
from .source.sources import Sources

_MAKING_S = 0.6  # what running the other cells again may cost more than the failing one alone
_DEVICE_S = 3.0  # left out for the start of a device, which each rerun beside one makes anew, whatever cells it runs
_NOTHING, _FAILED, _PLACE, _ALL = range(4)  # what a run tells of a failure
_RESUMED = 4  # ways to continue a loop that are tried
_LONGER = 3  # times as long as a cell took may its rerun take, where that is more than the limit


@dataclass
class Rerun:
    """What the recorder saw of the failure; it may be at work still, on what is to come after it."""

    plan: ReplayPlan
    seen: Evidence
    rest: Callable[[], Outcome[Evidence]] | None = None
    stopped: bool = False  # by the person: nothing more is run

    @cached_property
    def whole(self) -> Evidence | None:
        """All that was seen in the end, waited for; None if the rest came to nothing."""
        if self.rest is None:
            return self.seen
        rest = self.rest()
        return None if rest.timed_out else rest.value

    @property
    def reach(self) -> StopRule:
        """How far a run goes that is to be compared with this one."""
        first = self.seen.first
        if self.rest is not None and first is not None:
            return StopRule(self.seen.far, exactly=True, conflict=first)
        passes = len(self.seen.passes)
        if first is not None:  # a rewrite has to come past the conflict, where the recorder itself did not
            passes = max(passes, first + 1)
        stopped = not self.seen.finished and self.seen.error is None  # an error ends a run, a rewrite may come past it
        return StopRule(passes, exactly=stopped, conflict=first)

    @property
    def faithful(self) -> bool:
        """Whether what was computed here tells what the cell means.

        A session that has already seen a failed run holds what that one wrote. A write that changes nothing the second
        time (a clamp, a mask, a normalisation) then looks as if it had been harmless the first time.
        """
        return self.plan.fresh or all(c.effective for c in self.seen.clashes)


@dataclass(frozen=True)
class Reproduction:
    """Reruns of a cell that failed with an error of a ``family``. ``tell`` is told how long one takes.

    ``running`` ends those that are still at work. ``error`` is the failure, where there is one to compare with. ``met`` is
    given what a run has seen of the failure by the moment at which it met it.
    """

    session: Session
    sources: Sources
    cell: int
    family: str
    options: Options
    tell: Callable[[str], None]
    sandbox: Sandbox
    running: contextlib.ExitStack
    error: BaseException | None = None
    met: Callable[[Evidence], None] = lambda seen: None

    def rerun(self) -> tuple[Rerun | None, str | None]:
        """The run that tells most of the failure, or why there is none."""
        reason: str | None = None
        best: tuple[int, Rerun | None] = (_NOTHING, None)
        plans = self._plans()
        while (plan := next(plans, None)) is not None:
            with contextlib.ExitStack() as ours:
                try:
                    run, failure = self._record(plan, ours)
                except KeyboardInterrupt:  # what is known by now is told
                    if best[1] is not None:
                        best[1].stopped = True
                    return best[1], None if best[0] else message("you_stopped")
                if run is not None and run.stopped:
                    return self._kept(run, ours), None
                if run is None:
                    reason = failure
                    continue
                if run.seen.carriers and not plan.fresh:  # without what the failed run left behind: as the first time
                    clean, _ = self._record(replace(plan, cut=run.seen.carriers), ours)
                    if clean is not None and self._told(clean) >= _PLACE:
                        return self._kept(clean, ours), None
                    plans = itertools.chain(self._remade(plan, run.seen.carriers), plans)
                told = self._told(run)
                if told < _ALL and run.rest is not None and run.whole is not None:
                    run = Rerun(plan, run.whole)
                    told = self._told(run)
                if told == _ALL:
                    return self._kept(run, ours), None
            if told > best[0]:
                best = told, run
            reason = reason or message("did_not_fail")
        return best[1], None if best[0] else reason

    def _plans(self) -> Iterator[ReplayPlan]:
        """From the start, or, where that would take too long or comes to nothing, from the last iteration."""
        from_start = _plans(self.session, self.sources, self.cell, self.options)
        resumed = itertools.islice(self._resumed(), _RESUMED)
        yield from itertools.chain(resumed, from_start) if self.long else itertools.chain(from_start, resumed)

    def _remade(self, plan: ReplayPlan, carriers: tuple[str, ...]) -> Iterator[ReplayPlan]:
        """The failing cell, which was run alone, behind the cells that made what carries the failed run's graph."""
        if plan.cells == (self.cell,) and plan.resumed is None and self.options.replay == "auto":
            history = self.session.history_until(self.cell, self.sources.cells)
            remade = ReplayPlan(readers_of(self.sources, history, self.cell, carriers))
            if _takes(self.session, remade) <= self.options.time_limit / 2:
                yield remade

    @property
    def long(self) -> bool:
        """Whether the cell ran for longer than a rerun is given."""
        return self.session.seconds.get(self.cell, 0.0) > self.options.time_limit

    def limit(self, plan: ReplayPlan) -> float:
        """Seconds that one run may take. From the start of a long cell that is for the person to say, by Ctrl-C."""
        if not self.long or plan.resumed is not None or self.options.command_line:
            return self.options.time_limit
        return max(self.options.time_limit, _LONGER * self.session.seconds[self.cell])

    def stands_on(self, plan: ReplayPlan) -> list[str]:
        """What a person should know about the way in which the failure was reproduced, a sentence each."""
        said: list[str] = []
        if plan.resumed is not None:
            said.append(message("resumed", place=plan.resumed.label, count=ITERATIONS))
        if compiled.in_use():
            said.append(message("ran_uncompiled"))
        if process_group.in_use() and process_group.size() > 1:
            said.append(message("alone_in_group"))
        return said

    def _resumed(self) -> Iterator[ReplayPlan]:
        if self.error is None or not self.sandbox.is_copy:
            return
        try:
            for loop in resumable(self.error, self.session.shell, self.sources):
                yield ReplayPlan((self.cell,), resumed=loop)
        except (SyntaxError, ValueError):
            return  # a text that is not Python has no loops to be found

    def _told(self, run: Rerun) -> int:
        """How much a run tells of the failure; of a run from the last iteration only if it is the same one."""
        told = _told(run, self.family)
        if run.plan.resumed is None or told < _PLACE or self.error is None:
            return told
        if not all(c.known for c in run.seen.clashes):
            return _FAILED  # what the failed iteration left was in the way of the first one
        return told if same_failure(run.seen, self.error, self.family, self._raised) else _NOTHING

    @property
    def _raised(self) -> tuple[SourceRange, ...]:
        return spots(error_stack(self.error), self.sources) if self.error is not None else ()

    def _tell_lines(self, run: Rerun) -> None:
        """What a run is seen to meet is told, where no other run will be made to learn more."""
        if self._told(run) == _ALL and not run.seen.carriers:
            self.met(run.seen)

    def _kept(self, run: Rerun, ours: contextlib.ExitStack) -> Rerun:
        self.running.push(ours.pop_all())
        return run

    def _record(self, plan: ReplayPlan, ours: contextlib.ExitStack) -> tuple[Rerun | None, str | None]:
        stop = StopRule(whole=plan.resumed is not None)
        limit = self.limit(plan)
        outcome = ours.enter_context(
            self.sandbox.telling(
                RecordRequest(self.sources, plan, stop, RecordOptions.at(self.family, self._raised)),
                limit,
                lambda seconds: self.tell(message("rerunning", seconds=seconds)),
            )
        )
        first, stopped = Outcome[Evidence](), False
        try:
            first = outcome()
            if first.value is not None and first.value.early:
                self._tell_lines(Rerun(plan, first.value))
                first = _later(first, outcome())
        except KeyboardInterrupt:
            first, stopped = first if first.value is not None else outcome(), True
            if first.value is None or not relevant(first.value, self.family):
                raise
        if first.refused is not None and (first.value is None or not relevant(first.value, self.family)):
            reason = message("reaches_out", attempt=first.refused)
            return None, message("with_effects", reason=reason, remedy=self.options.to_set("allow_side_effects", True))
        late = first.failure or message("timed_out", seconds=limit)
        if first.timed_out and (first.value is None or not relevant(first.value, self.family)):
            return None, message("with_remedy", reason=late, remedy=self.options.more_time(limit))
        if first.value is None:
            return None, first.failure
        return Rerun(plan, first.value, outcome if first.more and not stopped else None, stopped), None


def _later(early: Outcome[Evidence], answer: Outcome[Evidence]) -> Outcome[Evidence]:
    """The later answer of a run; the early one as the last word where there is no other."""
    return answer if answer.value is not None else replace(early, more=False)


def _told(run: Rerun, family: str) -> int:
    """How much a run tells of the failure."""
    found = relevant(run.seen, family)
    if not any(c.known for c in found):
        return _FAILED if found else _NOTHING
    made_above = family in ("inference", "no_grad_view") and found[0].save is None
    return _PLACE if made_above or not run.faithful else _ALL


def _plans(session: Session, sources: Sources, cell: int, options: Options) -> list[ReplayPlan]:
    """How the failure may be reproduced, the best way that can be afforded first.

    From the top it is as it was the first time, which a session that has already failed once is not; but that takes as
    long as all cells together. The failing cell alone is enough in most cases, and those that made what it reads in most
    of the others.
    """
    alone = ReplayPlan((cell,))
    fresh = ReplayPlan(session.history_until(cell, sources.cells), fresh=True)
    if options.replay == "cell":
        return [alone]
    if options.replay == "notebook":
        return [fresh]
    own = session.busy_for(cell)
    # A model of such a size is not made a second time, beside the first, if it can be helped.
    limit = options.time_limit / 2
    # What a cell waits for (a download, a sleep) it may wait for again.
    makers, changers = (ReplayPlan(makers_of(sources, fresh.cells, cell, changed)) for changed in (False, True))
    whole = next((p for p in (fresh, changers) if _takes(session, p) <= limit), makers)
    in_time = [p for p in (whole, makers) if _takes(session, p) <= limit]
    making = session.cost_of(fresh.cells) - own - (_DEVICE_S if devices_in_use() else 0.0)
    if fresh in in_time and making <= max(_MAKING_S, own / 2) and not large():
        return [fresh, alone]
    return list(dict.fromkeys([alone, *reversed(in_time)]))


def _takes(session: Session, plan: ReplayPlan) -> float:
    """Seconds that the plan's cells computed and waited for."""
    waited = sum(max(0.0, session.seconds.get(n, 0.0) - session.busy_for(n)) for n in plan.cells)
    return session.cost_of(plan.cells) + waited
