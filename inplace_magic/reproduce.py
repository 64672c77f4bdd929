"""The failure once more: which cells run again for it, and what the recorder saw of them."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from .explain.conflicts import relevant
from .message import message
from .options import Options
from .record.evidence import Evidence
from .record.replay import RecordOptions, ReplayPlan, StopRule, far_enough
from .record.requests import RecordRequest
from .sandbox import Sandbox
from .sandbox.fork import Outcome
from .sandbox.process_memory import large
from .session.history import Session
from .source.document import Sources
from .source.editor import names_bound, names_loaded

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
_MAKING_S = 0.3  # what running the other cells again may cost more than the failing one alone
_NOTHING, _FAILED, _PLACE, _ALL = range(4)  # what a run tells of a failure


@dataclass
class Rerun:
    """What the recorder saw of the failure; it may be at work still, on what is to come after it."""

    plan: ReplayPlan
    seen: Evidence
    rest: Callable[[], Outcome[Evidence]] | None = None

    @cached_property
    def whole(self) -> Evidence | None:
        """All that was seen in the end, waited for; None if the rest came to nothing."""
        return self.seen if self.rest is None else self.rest().value

    def reach(self, seconds: float) -> StopRule:
        """How far a run goes that is to be compared with this one."""
        first = self.seen.first
        if self.rest is not None and first is not None:
            return StopRule(seconds, far_enough(first), exactly=True, conflict=first)
        return StopRule(seconds, len(self.seen.passes), exactly=not self.seen.finished, conflict=first)


@dataclass(frozen=True)
class Reproduction:
    """Reruns of a cell that failed with an error of a ``family``. ``tell`` is told how long one takes.

    ``rooms`` ends those that are still at work.
    """

    session: Session
    sources: Sources
    cell: int
    family: str
    options: Options
    tell: Callable[[str], None]
    sandbox: Sandbox
    rooms: contextlib.ExitStack

    def rerun(self) -> tuple[Rerun | None, str | None]:
        """The run that tells most of the failure, or why there is none."""
        reason: str | None = None
        best: tuple[int, Rerun | None] = (_NOTHING, None)
        for plan in _plans(self.session, self.sources, self.cell, self.options, self.sandbox):
            with contextlib.ExitStack() as room:
                run, failure = self._record(plan, room)
                if run is None:
                    reason = failure
                    continue
                if run.seen.carriers and not plan.fresh:  # without what the failed run left behind: as the first time
                    clean, _ = self._record(replace(plan, cut=run.seen.carriers), room)
                    if clean is not None and any(c.known for c in relevant(clean.seen, self.family)):
                        return self._kept(clean, room), None
                told = _told(run.seen, self.family)
                if told != _ALL and run.rest is not None and run.whole is not None:
                    run = Rerun(plan, run.whole)
                    told = _told(run.seen, self.family)
                if told == _ALL:
                    return self._kept(run, room), None
            if told > best[0]:
                best = told, run
            reason = reason or message("did_not_fail")
        return best[1], None if best[0] else reason

    def _kept(self, run: Rerun, room: contextlib.ExitStack) -> Rerun:
        self.rooms.push(room.pop_all())
        return run

    def _record(self, plan: ReplayPlan, room: contextlib.ExitStack) -> tuple[Rerun | None, str | None]:
        stop = StopRule(seconds_of(self.session, self.cell))
        outcome = room.enter_context(
            self.sandbox.telling(
                RecordRequest(self.sources, plan, stop, RecordOptions.at(self.family)),
                self.options.time_limit,
                lambda seconds: self.tell(message("rerunning", seconds=seconds)),
            )
        )
        first = outcome()
        if first.refused is not None and (first.value is None or _told(first.value, self.family) == _NOTHING):
            reason = message("reaches_out", attempt=first.refused)
            return None, message("with_effects", reason=reason, remedy=self.options.to_set("allow_side_effects", True))
        if first.timed_out:
            return None, message(
                "with_remedy", reason=first.failure, remedy=self.options.more_time(self.options.time_limit)
            )
        if first.value is None:
            return None, first.failure
        return Rerun(plan, first.value, outcome if first.more else None), None


def seconds_of(session: Session, cell: int) -> float:
    """Seconds after which a run goes no further past the failure than it must: that of a cell that took twice as long."""
    return max(0.1, session.seconds.get(cell, 0.0) / 2)


def _told(seen: Evidence, family: str) -> int:
    """How much a run tells of the failure."""
    found = relevant(seen, family)
    if not any(c.known for c in found):
        return _FAILED if found else _NOTHING
    return _PLACE if family == "inference" and found[0].save is None else _ALL  # made above what was run


def _plans(session: Session, sources: Sources, cell: int, options: Options, sandbox: Sandbox) -> list[ReplayPlan]:
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
    own = session.seconds.get(cell, 0.0)
    # A model of such a size is not made a second time, beside the first, if it can be helped.
    if _costs(session, fresh) - own <= max(_MAKING_S, own / 2) and not large():
        return [fresh, alone]
    limit = options.time_limit / 2
    makers = ReplayPlan(_makers(sources, fresh.cells, cell))
    plans = [alone, makers] if makers != alone and _costs(session, makers) <= limit else [alone]
    # In the process itself, running all cells would make every model a second time, beside the first.
    return [*plans, fresh] if sandbox.is_copy and _costs(session, fresh) <= limit else plans


def _costs(session: Session, plan: ReplayPlan) -> float:
    """Seconds that the plan's cells took when they ran; without end if one ran before we could look."""
    cost = session.cost_of(plan.cells)
    return float("inf") if cost is None else cost


def _makers(sources: Sources, history: tuple[int, ...], cell: int) -> tuple[int, ...]:
    """The failing cell and, of the cells before it, those that made what it reads: the latest of each name.

    A cell that only defines and imports made nothing that could have gone wrong.
    """
    chosen = [cell]
    tree = sources.cells[cell].tree
    wanted = names_loaded(tree.body) if tree is not None else set()
    for number in sorted((n for n in history if n < cell), reverse=True):
        tree = sources.cells[number].tree
        made = [s for s in tree.body if not isinstance(s, _DEFINITIONS)] if tree is not None else []
        names = names_bound(made)
        if names & wanted:
            chosen.append(number)
            wanted = (wanted - names) | names_loaded(made)
    return tuple(reversed(chosen))
