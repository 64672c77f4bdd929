"""The search for a fix that runs: the cheapest candidate first; where it fails again elsewhere, what mends that is added.

What a candidate has left to mend may have several answers. Each makes a candidate of its own, and all of them wait for
their turn together with what was proposed at first, in the order of one cost.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import replace

from ..diagnosis import LiveChange
from ..explain.conflicts import relevant
from ..fixes import Problem
from ..search import propose
from .attempt import Attempt, try_out
from .bench import Bench
from .candidate import Candidate, Unfinished, mended

_Entry = tuple[int, int, int, Candidate | Unfinished]


def verified(bench: Bench, problem: Problem, enough: Callable[[], bool]) -> Iterator[Attempt]:
    """The fixes for a problem, each one verified, the cheapest first, until somebody has had ``enough``."""
    waiting: list[_Entry] = []
    number = 0

    def wait(item: Candidate | Unfinished) -> None:
        nonlocal number
        number += 1
        candidate = item.candidate if isinstance(item, Unfinished) else item
        heapq.heappush(waiting, (candidate.cost, -len(candidate.steps), number, item))

    for proposal in propose(problem):
        wait(Candidate((proposal,), (mended(problem.clash, problem.sources),), proposal.rank or 0))
    tried: set[object] = set()
    found: list[Candidate] = []
    while waiting:
        item = heapq.heappop(waiting)[-1]
        if bench.over or enough():
            return
        if isinstance(item, Unfinished):
            for candidate in _extended(bench, problem, item):
                wait(candidate)
            continue
        key = tuple(sorted(item.texts.items())), item.live
        if key in tried or any(one.parts < item.parts for one in found) or (found and item.branched):
            continue  # something smaller is enough
        tried.add(key)
        seen = try_out(bench, problem, item)
        if isinstance(seen, Unfinished):
            wait(seen)
        elif seen is not None:
            found.append(item)
            yield seen


def _extended(bench: Bench, problem: Problem, unfinished: Unfinished) -> Iterator[Candidate]:
    """The candidate with each proposal for the next conflict; none where a conflict is left that had its turn."""
    candidate = unfinished.candidate
    cut = tuple(LiveChange("detach", path) for path in bench.plan.cut)
    left = unfinished.left or bench.record(candidate.texts, candidate.live + cut, candidate.spared)
    clashes = [c for c in relevant(left, problem.family) if c.known] if left is not None else []
    sources = bench.sources.with_texts(candidate.texts)
    if left is None or not clashes or any(candidate.had(clash, sources) for clash in clashes):
        return
    clash = clashes[0]
    family = clash.family or clash.kind
    following = propose(replace(problem, family=family, clash=clash, evidence=left, sources=sources, raised=()))
    if clash.write is None:  # no line to tell conflicts apart by
        following = (p for p in following if (p.rule, p.title) not in candidate.parts)
    yield from candidate.with_steps(following, clash, sources)
