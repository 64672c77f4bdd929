"""The order of verified fixes; how many are tried is counted in runs, never in seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ..diagnosis import Fix, Gradients
from ..gradients.compare import compare
from ..message import message
from ..source.lines import lines_of
from ..transforms.problem import Problem
from .attempt import RANKS, Attempt
from .bench import Bench
from .composing import verified
from .effect import proof

_RUNS, _RUNS_LONG = 60, 24  # of rewrites, in all; where the cell computes more than _LONG
_LONG = 300_000  # Recorder.work: some seconds
# Runs once a fix is found that changes nothing, by how much the cell computes at most (Recorder.work): what is shown beside
# it is worth less, the longer a person waits for it; nothing, where that is the time of several runs of a long cell.
_FURTHER = ((3_000, 8), (30_000, 4), (float("inf"), 0))


def best(
    bench: Bench, problem: Problem, wanted: int, tried: Callable[[tuple[Fix, ...]], None] = lambda fixes: None
) -> tuple[Fix, ...]:
    """The best verified fixes, each of another kind; ``tried`` is told of those that are known so far.

    By what they are worth (search.Rank); of those with the same rank, what leaves the backwards ahead of the conflict as they
    are before what cuts there as well, as many updates as written before fewer, what takes fewer kinds of change to change more
    than it is for, and of these what changes less; what says what the code was meant to before what keeps its result; then
    what costs less, and was tried first. A cut that leaves a parameter without any gradient is shown where there is nothing
    else, or a reset alone, and behind torch's copies where there is nothing but those; of two such cuts not the one that leaves
    the same parameters, and more, so; what ends with another error, where there is nothing else; what makes a leaf a result, keeps
    a graph past a step or limits a backward, where nothing of the best rank does without; the first of
    these behind others of its rank that are as good so far.
    """
    found = _Found(bench)
    for attempt in verified(bench, problem, found.enough):
        if any((a.fix.cells, a.fix.files) == (attempt.fix.cells, attempt.fix.files) for a in found.attempts):
            continue
        found.attempts.append(attempt)
        tried(chosen(found.attempts, wanted))
        if len({a.fix.rule for a in found.attempts if a.fix.gradients == "same" and not a.lesser}) >= wanted:
            break
    return chosen(found.attempts, wanted)


def chosen(attempts: list[Attempt], wanted: int) -> tuple[Fix, ...]:
    """Those that are shown, in their order (see ``best``)."""
    found = list(_seen_twice(attempts))
    shown: list[tuple[Attempt, Fix]] = []
    good = [a for a in found if a.fix.verified and a.rank != "doubtful"]
    whole = [a for a in good if not a.fix.untrained]
    # What a state began from may be cut off with it after its first use: to begin anew each time changes more.
    resets = all(a.fix.rule == "reset_state" and a.rank == "different" for a in whole)
    copies = bool(whole) and all(a.rank == "copied" for a in whole)
    if not copies:
        good = [a for a in good if not a.fix.untrained or a.rank == "deprived"] if whole and resets else whole
    if any(a.rank == "same" and not a.lesser for a in good):
        good = [a for a in good if not a.lesser]
    good = good or found
    least = [a for a in good if not any(_cuts_less(b, a) for b in good)]
    ordered = sorted(least, key=lambda a: (copies and bool(a.fix.untrained), _key(a)))
    for attempt in ordered:
        fix = attempt.fix
        if ordered[0].corrects and fix.gradients == "same":
            fix = _saying(fix, message("change_keeps_mistake"))
        if not _repeats(attempt, [other for other, _ in shown]):
            shown.append((attempt, fix))
    apart = {n for n, (one, _) in enumerate(shown) if _trains_otherwise(one, [other for other, _ in shown[:n]])}
    first = sorted(range(len(shown)), key=lambda n: n not in apart)[:wanted]
    return tuple(shown[n][1] for n in sorted(first))


def _cuts_less(one: Attempt, other: Attempt) -> bool:
    """Whether both leave parameters without any gradient, the other one, of no better rank, these and more."""
    alike = one.fix.gradients == other.fix.gradients and RANKS.index(one.rank) <= RANKS.index(other.rank)
    both = set() < {*one.fix.untrained} < {*other.fix.untrained}
    return both and alike and one.fix.verified and one.again is None


def _trains_otherwise(attempt: Attempt, better: Sequence[Attempt]) -> bool:
    """Whether a fix of the best ranks lets some leaf learn otherwise than each better one of its rank does: to such a one it
    would be an alternative in words alone."""
    alike = (other for other in better if other.rank == attempt.rank)
    best = attempt.rank in ("same", "whole")
    return best and not any(compare(other.passes, attempt.passes) == "same" for other in alike)


def _repeats(attempt: Attempt, chosen: Sequence[Attempt]) -> bool:
    """Whether a fix adds nothing to others: one of them writes the same elsewhere, or is of its kind and gives the same
    gradients; of one kind two are enough.
    """
    fix = attempt.fix
    alike = [other for other in chosen if other.fix.gradients == fix.gradients]
    of_kind = [other for other in alike if other.fix.rule == fix.rule]
    if any((other.fix.title, other.fix.changes) == (fix.title, fix.changes) for other in alike):
        return True
    if any(_code(other.fix) == _code(fix) for other in chosen):
        return True
    return len(of_kind) > 1 or any(compare(other.passes, attempt.passes) == "same" for other in of_kind)


def _code(fix: Fix) -> list[tuple[object, list[str]]]:
    """The texts without blank lines, those of comments, and what a cut asks for: by these alone no two fixes differ."""

    def bare(text: str) -> list[str]:
        lines = (line for line in lines_of(text) if line.strip() and line.lstrip()[0] != "#")
        return [line.replace(".requires_grad_()", "") for line in lines]

    texts: list[tuple[object, str]] = [*fix.cells.items(), *fix.files.items()]
    return [(place, bare(text)) for place, text in texts]


def _key(one: Attempt) -> tuple[int, bool, bool, bool, bool, int, int, bool, bool, bool, int, int]:
    rank, fewer = RANKS.index(one.rank), one.fewer > 0
    kinds = one.kinds if one.aside else 1  # how much follows from one change tells less than that another one is needed
    aside = kinds, one.aside, one.retrains, not one.serves, not one.corrects
    return rank, one.idle, one.sooner, fewer, one.unleafed, *aside, one.cost, one.turn


def _seen_twice(attempts: list[Attempt]) -> Iterator[Attempt]:
    """Where one fix lets the cell run a second time and another one does not, that is said of the other."""
    survives = any(attempt.again is None for attempt in attempts)
    for attempt in attempts:
        if attempt.again is None or not survives:
            yield attempt
            continue
        fix = attempt.fix
        label: Gradients = "different" if fix.gradients in ("same", "truncated") else fix.gradients
        fix = _saying(replace(fix, gradients=label), message("change_fails_again"))
        yield replace(attempt, fix=fix, rank=label, aside=attempt.aside + 1)


def _saying(fix: Fix, said: str) -> Fix:
    changed = (*fix.changes, said)
    return replace(fix, changes=changed, proof=proof(fix.gradients, changed))


@dataclass
class _Found:
    """What has been verified so far, and whether more is to be tried."""

    bench: Bench
    attempts: list[Attempt] = field(default_factory=list)
    _until: int = _RUNS

    def enough(self) -> bool:
        if self._until == _RUNS and any(a.fix.gradients == a.rank == "same" and not a.lesser for a in self.attempts):
            work = self._work()
            further = next(runs for most, runs in _FURTHER if work <= most)
            self._until = min(_RUNS, self.bench.runs + further)
        runs = self.bench.runs
        return runs >= self._until or (runs >= _RUNS_LONG and self._work() > _LONG)

    def _work(self) -> float:
        """How much the cell computes, in the recorder's unit; without end where that is not known."""
        recorded = self.bench.recorded()
        return float("inf") if recorded is None else recorded.work
