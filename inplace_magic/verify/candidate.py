"""A candidate: one proposal or several together, with the conflicts that they are there to mend."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from operator import ge

from ..diagnosis import LiveChange
from ..record.evidence import Event, Evidence, RecordedConflict
from ..search import cost
from ..source.location import SourceRange
from ..source.sources import Sources
from ..transforms.proposal import Proposal

_KINDS, _STEPS = 3, 6  # at most: different rules in one fix, conflicts that it mends one after the other
_FURTHER, _OTHER = 1, 10  # what the same change at one more place costs, and each answer of a kind after the first

Mended = tuple[object, tuple[str, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Candidate:
    """``steps``: what is changed, each step proposed for the texts that the one before has left.

    ``mended``: the conflicts that had their turn, with their lines as they read then and how many read so; where a line reads
    otherwise by now, or fewer do, it may be another conflict of the same line. ``branched``: it took another way than the plainest one, which is
    only worth a run while nothing else has been found.
    """

    steps: tuple[Proposal, ...]
    mended: tuple[Mended, ...]
    cost: int
    branched: bool = False

    def __str__(self) -> str:
        return " + ".join(f"{step.rule}: {step.title}" for step in self.steps)

    @property
    def texts(self) -> dict[int, str]:
        return {number: text for step in self.steps for number, text in step.texts.items()}

    @property
    def live(self) -> tuple[LiveChange, ...]:
        return tuple(change for step in self.steps for change in step.live)

    @property
    def spared(self) -> tuple[int, ...]:
        return tuple(cell for step in self.steps for cell in step.spared)

    @property
    def parts(self) -> frozenset[tuple[str, str]]:
        return frozenset((step.rule, step.title) for step in self.steps)

    def with_steps(
        self, proposals: Iterable[Proposal], clash: RecordedConflict, sources: Sources
    ) -> Iterator[Candidate]:
        """The candidate with each proposal for a conflict that it has left.

        Different changes add up in cost; the same change at a further place is hardly more to read. The first answer
        that goes on with the same kind of change is the plain one, every other one branches off.
        """
        last, kinds = self.steps[-1], {step.rule for step in self.steps}
        local = all(step.local for step in self.steps)
        alike = 0
        for step in proposals:
            if step.rule == last.rule:
                # a change of the flow that mends the next conflict may be all that is needed: by itself it is cheaper
                so_far = self.cost if last.local else max(self.cost, cost(step))
                total, branched = so_far + _FURTHER + _OTHER * alike, alike > 0
                alike += 1
            else:
                total, branched = self.cost + _FURTHER + cost(step), not (local and step.local)
            if len(self.steps) < _STEPS and len({step.rule, *kinds}) <= _KINDS:
                steps = (*self.steps, step)
                yield Candidate(steps, (*self.mended, mended(clash, sources)), total, self.branched or branched)

    def smaller(self, sources: Sources) -> Iterator[Candidate]:
        """The candidate without one of its steps, where a later one of another kind may serve for both."""
        for at, gone in enumerate(self.steps[:-1]):
            if all(step.rule == gone.rule for step in self.steps[at + 1 :]):
                continue
            before = {n: cell.raw for n, cell in sources.cells.items()}
            before |= {n: text for step in self.steps[:at] for n, text in step.texts.items()}
            rest = []
            for step in self.steps[at + 1 :]:
                texts = {
                    n: _without(t, before[n], gone.texts[n]) if n in gone.texts else t for n, t in step.texts.items()
                }
                rest.append(step.with_texts({n: t for n, t in texts.items() if t is not None}))
            if all(len(one.texts) == len(step.texts) for one, step in zip(rest, self.steps[at + 1 :])):
                yield replace(self, steps=(*self.steps[:at], *rest))

    def had(self, clash: RecordedConflict, sources: Sources) -> bool:
        """Whether a conflict that is left had its turn."""
        key, text, alike = mended(clash, sources)
        return clash.write is not None and any(
            (key, text) == (one, read) and all(map(ge, alike, then)) for one, read, then in self.mended
        )


@dataclass(frozen=True)
class Unfinished:
    """A candidate that fails again elsewhere: with what family of error, or what it leaves, where that is known already."""

    candidate: Candidate
    left: Evidence | None = None
    family: str | None = None


def mended(clash: RecordedConflict, sources: Sources) -> Mended:
    """What tells a conflict from another one although an edit may have moved its lines; how its lines read, and how many so."""

    def line(spot: SourceRange) -> object:
        return spot if spot.cell is None else (spot.cell, spot.function, bare(_line(spot, sources)))

    def lines(event: Event | None) -> tuple[object, ...]:
        """With the calls that led to the line: a helper's line is met through each of them."""
        if event is None or not event.stack:
            return ()
        return *map(line, event.stack), len(alike(event.stack[0], event.stack[0].line))

    def alike(spot: SourceRange, until: int | None = None) -> list[str]:
        """The lines that read as this one does; of two, one may have been rewritten."""
        others = sources.cells[spot.cell].lines[:until] if spot.cell is not None else []
        return [other for other in others if bare(other) == bare(_line(spot, sources))]

    write, save = clash.write, clash.save
    key = (
        clash.kind,
        write and (lines(write), write.operation, write.module),
        save and (lines(save), save.node, save.shape),
        lines(clash.need),
    )
    spots = [event.spot if event is not None else None for event in (write, save, clash.need)]
    counts = tuple(len(alike(spot)) if spot is not None else 0 for spot in spots)
    return key, tuple(_line(spot, sources) for spot in spots[:2]), counts


def _without(text: str, before: str, after: str) -> str | None:
    """A text that was made from ``after``, without what had made that from ``before``; None where the two changes meet."""
    lines = after.splitlines(keepends=True)

    def changes(other: list[str]) -> list[tuple[int, int, list[str]]]:
        codes = difflib.SequenceMatcher(None, lines, other, autojunk=False).get_opcodes()
        return [(first, last, other[i:j]) for kind, first, last, i, j in codes if kind != "equal"]

    later, undone = (changes(other.splitlines(keepends=True)) for other in (text, before))
    if any((first < end and begin < last) or first == begin for first, last, _ in later for begin, end, _ in undone):
        return None
    for first, last, new in sorted((*later, *undone), reverse=True):
        lines[first:last] = new
    return "".join(lines)


def _line(spot: SourceRange | None, sources: Sources) -> str:
    """The line at a spot as it stands; nothing where that is not known."""
    lines = sources.cells[spot.cell].lines if spot is not None and spot.cell is not None else []
    return lines[spot.line - 1] if spot is not None and spot.line <= len(lines) else ""


def bare(line: str) -> str:
    """A line without the copies and cuts that a step may have added to it."""
    return line.strip().replace(".clone()", "").replace(".detach()", "")
