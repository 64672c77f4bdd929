"""The search for a fix that runs: the cheapest candidate first; where it fails again elsewhere, what mends that is added.

What a candidate has left to mend may have several answers. Each makes a candidate of its own, and all of them wait for
their turn together with what was proposed at first, in the order of one cost.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from ..diagnosis import Gradients
from ..explain.conflicts import relevant
from ..search import IF_NOTHING_ELSE, LATE, cost, propose
from ..transforms.problem import Problem
from .attempt import RANKS, Attempt, Ran, measured, try_out
from .bench import Bench
from .candidate import Candidate, Unfinished, bare, mended

_BRANCHES, _ANY = 12, 1000  # candidates that took another way than the plainest one; any cost
_PATIENCE = 2  # candidates that are tried before what another one changes is measured
# Times the cost of what has been found, for a way that is not the plainest one.
_WORTH = {"same": 1, "truncated": 2, "deprived": 2}
_ENOUGH = ("same", "truncated")  # ranks beside which IF_NOTHING_ELSE is not tried


def verified(bench: Bench, problem: Problem, enough: Callable[[], bool]) -> Iterator[Attempt]:
    """The fixes for a problem, each one verified, the cheapest first, until somebody has had ``enough``."""
    waiting = _Waiting()

    def later(gradients: Gradients) -> bool:
        return gradients == "different" or (gradients != "same" and waiting.has_fix and enough())

    had = (mended(problem.clash, problem.sources),)
    for proposal in propose(problem):
        waiting.add(Candidate((proposal,), had, cost(proposal)))
    for item in waiting:
        if bench.over:
            return
        seen: Attempt | Ran | Unfinished | None
        if enough() and (waiting.has_fix or not isinstance(item, Ran)):
            waiting.end()
            continue
        if isinstance(item, Ran):
            candidate, seen = item.candidate, measured(bench, problem, item)
        elif isinstance(item, Unfinished):
            for candidate in _extended(bench, problem, item):
                waiting.add(candidate)
            continue
        else:
            candidate, seen = item, try_out(bench, problem, item, later)
        if isinstance(seen, Unfinished):
            waiting.add(seen)
        elif isinstance(seen, Ran):
            waiting.put_aside(seen)
        elif seen is not None:
            candidate, seen = _without_superfluous(bench, problem, candidate, seen)
            waiting.found(candidate, seen)
            yield seen


def _without_superfluous(
    bench: Bench, problem: Problem, candidate: Candidate, found: Attempt
) -> tuple[Candidate, Attempt]:
    """A fix without the steps in whose absence it is verified as well, and worth no less."""
    for smaller in candidate.smaller(bench.sources):
        seen = try_out(bench, problem, smaller, lambda gradients: False) if not bench.over else None
        if isinstance(seen, Attempt) and seen.fix.verified and _worth(seen) <= _worth(found):
            return _without_superfluous(bench, problem, smaller, seen)
    return candidate, found


def _worth(attempt: Attempt) -> tuple[int, bool, int, int, int]:
    """The less, the better; what is worth the same changes the same."""
    fix = attempt.fix
    return RANKS.index(attempt.rank), attempt.again is not None, attempt.fewer, attempt.aside, len(fix.untrained)


class _Waiting:
    """What is still to be tried, in the order of cost; nothing that has been tried, or for which something smaller serves."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, int, Candidate | Unfinished]] = []
        self._number = itertools.count()
        self._tried: set[object] = set()
        self._found: list[Candidate] = []
        self._aside: list[Ran] = []
        self._patience = 0
        self._served: set[str] = set()  # rules with a fix that changes nothing
        self._alike: Counter[str] = Counter()  # by rule, the fixes that keep the gradients
        self._limit, self._branches, self._settled = _ANY, _BRANCHES, False

    def add(self, item: Candidate | Unfinished) -> None:
        candidate = item.candidate if isinstance(item, Unfinished) else item
        turn = candidate.cost + LATE.get(candidate.steps[-1].form, 0)
        heapq.heappush(self._heap, (0, turn, -len(candidate.steps), next(self._number), item))

    def put_aside(self, ran: Ran) -> None:
        """What this one changes is measured later: another one, that changes nothing, may be found with fewer runs."""
        self._patience = self._patience if self._aside else _PATIENCE
        self._aside.append(ran)

    @property
    def has_fix(self) -> bool:
        """Whether a fix is known."""
        return bool(self._found)

    def end(self) -> None:
        """No other candidate is tried, nor is one measured where there is a fix."""
        self._heap.clear()
        if self._found:
            self._aside.clear()

    def __iter__(self) -> Iterator[Candidate | Unfinished | Ran]:
        while self._heap or self._aside:
            if self._aside and (self._found or not self._heap or not self._patience):
                ran = self._aside.pop(0)
                if not self._served_by_part(ran.candidate):
                    yield ran
                continue
            late, turn, steps, number, item = heapq.heappop(self._heap)
            alike = self._alike[item.steps[0].rule] if isinstance(item, Candidate) else 0
            if late < alike:  # others of its rule have been found since: those that tell more have their turn first
                heapq.heappush(self._heap, (alike, turn, steps, number, item))
                continue
            if isinstance(item, Unfinished) or self._is_new(item):
                self._patience -= 1 if isinstance(item, Candidate) and self._aside else 0
                yield item

    def found(self, candidate: Candidate, attempt: Attempt) -> None:
        self._found.append(candidate)
        if attempt.rank == "same" and not (attempt.again or attempt.aside or attempt.fewer):
            self._alike[attempt.fix.rule] += 1
        self._settled = self._settled or attempt.rank in _ENOUGH
        self._limit = min(self._limit, candidate.cost * _WORTH.get(attempt.rank, _ANY))
        if candidate.steps[0].local and attempt.fix.gradients == "same" and not attempt.again:
            self._served.add(attempt.fix.rule)

    def _served_by_part(self, candidate: Candidate) -> bool:
        """Whether a fix is known that is a part of the candidate."""
        return any(one.parts < candidate.parts for one in self._found)

    def _is_new(self, candidate: Candidate) -> bool:
        key = tuple(sorted(candidate.texts.items())), candidate.live
        if (
            key in self._tried
            or candidate.steps[0].rule in self._served
            or (self._settled and candidate.steps[0].form in IF_NOTHING_ELSE)
            or self._served_by_part(candidate)
        ):
            return False
        if candidate.branched:
            if not self._branches or candidate.cost > self._limit:
                return False
            self._branches -= 1
        self._tried.add(key)
        return True


def _extended(bench: Bench, problem: Problem, unfinished: Unfinished) -> Iterator[Candidate]:
    """The candidate with each proposal for the next conflict; none where a conflict is left that had its turn, nor for a part
    that is detached and whose path fails: it stops there for a reason.
    """
    candidate = unfinished.candidate
    if problem.clash.kind == "detached":
        return
    left = unfinished.left
    if left is None:
        live, freed = candidate.live + bench.left_behind, unfinished.family == "second_backward"
        left = bench.record(candidate.texts, live, candidate.spared, keep_graphs=freed)
    clashes = [c for c in relevant(left, problem.family) if c.known] if left is not None else []
    sources = bench.sources.with_texts(candidate.texts)
    if left is None or not clashes or any(candidate.had(clash, sources) for clash in clashes):
        return
    clash = clashes[0]
    family = clash.family or clash.kind
    further = replace(problem, family=family, clash=clash, evidence=left, sources=sources, raised=(), extends=True)
    following = propose(further)
    if clash.write is None:  # no line to tell conflicts apart by
        had = {(rule, bare(title)) for rule, title in candidate.parts}
        following = (p for p in following if (p.rule, bare(p.title)) not in had)
    yield from candidate.with_steps(following, clash, sources)
