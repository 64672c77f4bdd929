"""Where the runs of a verification are made: how many there may be is counted, so that the clock has no say."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from ..diagnosis import LiveChange
from ..message import message
from ..record.evidence import BackwardPass, Evidence
from ..record.plan import SHORT_WORK, RecordOptions, ReplayPlan, StopRule
from ..record.requests import ListenRequest, RecordRequest, SessionChanges
from ..sandbox import Outcome, Sandbox, Work
from ..session.cells_to_run import cells_to_run
from ..source.document import is_cell
from ..source.sources import Sources
from ..transforms.proposal import Reading

_log = logging.getLogger(__name__)
_ENDLESS = 2

Texts = dict[int, str]
Live = tuple[LiveChange, ...]
Spared = tuple[int, ...]


@dataclass(frozen=True)
class _AsWritten:
    """A run of the code as written, for a reading of it; the ``number``-th of its kind."""

    reading: Reading
    inert: bool = False
    number: int = 0
    keep_graphs: bool = False


@dataclass
class Bench:
    """What a verification needs: where it runs, and the plan by which the failure was reproduced.

    ``own`` is the reading of the code under which that was recorded, ``recorded`` gives what was seen; None if it came
    to nothing. ``faithful``: that run tells what the code means. ``limit_s`` only guards against a run that comes to no
    end. ``wrong``: the backwards of a plain run, where they give what nobody meant.
    """

    sandbox: Sandbox
    sources: Sources
    plan: ReplayPlan
    look: RecordOptions
    tell: Callable[[str], None]
    failing: int
    limit_s: float
    reach: StopRule
    own: Reading | None
    recorded: Callable[[], Evidence | None]
    faithful: bool = True
    long: bool = False  # it was ended where it had gone far enough
    carrying: frozenset[str] = frozenset()  # the names of the session that lead to a graph
    refused: list[str] = field(default_factory=list)  # why runs were not made
    tried: list[str] = field(default_factory=list)  # the titles of what was run, or was to be
    wrong: tuple[BackwardPass, ...] = ()
    runs: int = 0  # of rewrites
    _endless: int = 0  # runs that were ended at the limit
    _references: dict[_AsWritten, Evidence | None] = field(default_factory=dict)
    _begun: dict[_AsWritten, Callable[[], Outcome[Evidence]]] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether so many runs came to no end that more will not either."""
        return self._endless >= _ENDLESS

    @property
    def left_behind(self) -> Live:
        """What a rewrite has to let go of in the session: what still holds the failed run's graph."""
        return tuple(LiveChange("detach", path) for path in self.plan.cut)

    @property
    def runs_twice(self) -> bool:
        """Whether the cell is to be run a second time: where it is short, and meets its conflict only once by itself."""
        if self.long or not is_cell(self.failing) or self.plan.resumed is not None:
            return False
        seen = self.recorded()
        if seen is None or not seen.finished or seen.work > SHORT_WORK:
            return False
        stacks = [one.backward.stack for one in seen.passes]
        met = next((c.need.stack for c in seen.clashes if c.need is not None), None)
        return met is None or stacks.count(met) < 2

    # ---- the code as written ------------------------------------------------------------------------------------

    def reference(self, reading: Reading) -> Evidence | None:
        """What the code as written means, for a reading of a refused write.

        A backward past the failure may need a graph that is freed by then. Its gradients come from a run that keeps all.
        """
        freeing = self.recorded() if self.own in (None, reading) else self._recorded_as(_AsWritten(reading))
        if freeing is None or self.look.keep_graphs or not any(one.failed for one in freeing.passes):
            return freeing
        keeping = self._recorded_as(_AsWritten(reading, keep_graphs=True))
        return freeing if keeping is None else keeping

    def passes(self, reading: Reading) -> tuple[BackwardPass, ...]:
        seen = self.reference(reading)
        return seen.passes if seen is not None else ()

    def fails_as_written(self, reading: Reading, seen: Evidence) -> bool:
        """Whether a run ended with the very error with which the code as written ends, once it is past the failure."""
        reference = self.reference(reading) if seen.error is not None and seen.error_family is None else None
        return reference is not None and reference.error == seen.error

    def inert_reference(self, reading: Reading, number: int = 0) -> Evidence | None:
        """The same in a run in which no gradient has any effect; the ``number``-th such run."""
        return self._recorded_as(self._inert(reading, number))

    def _inert(self, reading: Reading, number: int) -> _AsWritten:
        reference = self.reference(reading)
        keeping = self._references.get(_AsWritten(reading, keep_graphs=True))
        return _AsWritten(reading, True, number, keep_graphs=reference is not None and reference is keeping)

    def _recorded_as(self, run: _AsWritten) -> Evidence | None:
        if run not in self._references:
            begun = self._begun.pop(run, None)
            self._references[run] = self._run(self._recording(run)) if begun is None else self._answer(begun())
        return self._references[run]

    def _recording(self, run: _AsWritten) -> RecordRequest:
        update = run.reading == "update" if self.own is not None else self.look.update_leaves
        keep = self.look.keep_graphs or run.keep_graphs
        look = replace(self.look, update_leaves=update, inert=run.inert, keep_graphs=keep)
        return RecordRequest(self.sources, self.plan, self.reach, look)

    @contextlib.contextmanager
    def inert_references_ahead(self, reading: Reading, count: int) -> Iterator[None]:
        """The first inert references begun on other cores, where there is room; ``inert_reference`` waits for them.

        Only copies of the process share their memory: of replicas, each would hold the session once more.
        """
        with contextlib.ExitStack() as running:
            running.callback(self._begun.clear)
            for number in range(count if self.sandbox.is_copy and not self.over else 0):
                run = self._inert(reading, number)
                if run not in self._references:
                    outcome = running.enter_context(
                        self.sandbox.ahead(self._recording(run), self.limit_s, gives_way=False)
                    )
                    if outcome is not None:
                        self._begun[run] = outcome
            yield

    # ---- a rewrite ----------------------------------------------------------------------------------------------

    def run(self, work: Work[Evidence]) -> Evidence | None:
        self.runs += 1
        return self._run(work)

    def _run(self, work: Work[Evidence]) -> Evidence | None:
        if self.over:
            return None
        return self._answer(
            self.sandbox.run(work, self.limit_s, lambda seconds: self.tell(message("trying", seconds=seconds)))
        )

    def _answer(self, outcome: Outcome[Evidence]) -> Evidence | None:
        if outcome.timed_out:
            self._endless += 1
            _log.debug("not run to its end: %s", outcome.failure)
            self.refused.append(outcome.failure or message("timed_out", seconds=self.limit_s))
            return None
        if outcome.failure is not None:
            _log.debug("not run: %s", outcome.failure)
            self.refused.append(outcome.failure)
        return outcome.value

    def cells(self, texts: Texts, spared: Spared) -> tuple[int, ...]:
        """The cells that have to run in the session for a rewrite to show: what it touches, and what failed with it."""
        return cells_to_run(self.sources, texts, spared, self.failing, self.carrying)

    def replays_more(self, texts: Texts, spared: Spared) -> bool:
        """Whether more cells are run here than have to run in the session, from the top or to make things anew."""
        return self.plan.fresh or self.replayed(texts, spared) != self.cells(texts, spared)

    def replayed(self, texts: Texts, spared: Spared) -> tuple[int, ...]:
        """The cells that have to run in the session, with those of the plan."""
        return tuple(sorted({*self.plan.cells, *self.cells(texts, spared)}))

    def listen(
        self, texts: Texts, live: Live, spared: Spared, *, inert: bool = False, again: bool = False
    ) -> Evidence | None:
        """Runs the rewritten cells by the plan, under plain autograd; the failing one a second time if ``again``."""
        sources = self.sources.with_texts(texts)
        look, reach = replace(self.look, inert=inert), replace(self.reach, again=again)
        if self.plan.fresh:
            return self.run(ListenRequest(sources, self.plan, reach, look))
        return self.listen_live(texts, live, spared, self.replayed(texts, spared), reach, look)

    def listen_live(
        self,
        texts: Texts,
        live: Live,
        spared: Spared,
        run: tuple[int, ...] | None = None,
        reach: StopRule | None = None,
        look: RecordOptions | None = None,
    ) -> Evidence | None:
        """Does what accepting the fix does to the session as it is now, and runs what has to run (or ``run``)."""
        sources = self.sources.with_texts(texts)
        plan = ReplayPlan(run or self.cells(texts, spared), resumed=self.plan.resumed)
        changes = SessionChanges(self.sources, texts, live)
        return self.run(ListenRequest(sources, plan, reach or self.reach, look or self.look, changes))

    @cached_property
    def second_time(self) -> str | None:
        """The error that ends the failing cell as written where it is run once more in the session, if it is not ours to
        mend: ``opt.add_param_group`` takes a group only once.
        """
        seen = self.listen_live({}, self.left_behind, ())
        return seen.error if seen is not None and seen.error_family is None else None

    @property
    def past_failure(self) -> StopRule:
        """Just past the failure: enough to see that what is verified from the top runs in the session as well."""
        if self.reach.conflict is None or self.reach.passes is None or not self.reach.exactly:
            return self.reach
        return replace(self.reach, passes=min(self.reach.passes, self.reach.conflict + 1))

    @contextlib.contextmanager
    def accepting(self, texts: Texts, live: Live, spared: Spared) -> Iterator[Callable[[], Evidence | None] | None]:
        """``listen_live`` begun on another core while the plan's own run is made; None where that cannot be."""
        if not self.replays_more(texts, spared) or not is_cell(self.failing) or self.over:
            yield None
            return
        sources, plan = self.sources.with_texts(texts), ReplayPlan(self.cells(texts, spared))
        changes = SessionChanges(self.sources, texts, live)
        with self.sandbox.ahead(
            ListenRequest(sources, plan, self.past_failure, self.look, changes), self.limit_s
        ) as outcome:
            yield (lambda: outcome().value) if outcome is not None else None

    def record(
        self, texts: Texts, live: Live, spared: Spared, keep_graphs: bool = False, hidden: bool = False
    ) -> Evidence | None:
        """The rewritten cells under the recorder: what is still in conflict."""
        sources = self.sources.with_texts(texts)
        look = replace(self.look, keep_graphs=self.look.keep_graphs or keep_graphs, hidden=self.look.hidden or hidden)
        if self.plan.fresh:
            return self.run(RecordRequest(sources, self.plan, self.reach, look))
        plan = ReplayPlan(self.replayed(texts, spared), resumed=self.plan.resumed)
        changes = SessionChanges(self.sources, texts, live)
        return self.run(RecordRequest(sources, plan, self.reach, look, changes))
