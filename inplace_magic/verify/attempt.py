"""A proposal is run as accepting it would run it, past the failure; where it fails again elsewhere, it is extended.

What mends the next conflict is added to it, and it is tried again.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..diagnosis import Fix, Gradients, LiveChange
from ..explain.conflicts import relevant
from ..fixes import LOCAL, Problem, Proposal
from ..gradients.compare import same_for_training, starved, untrained
from ..message import message
from ..record.evidence import Evidence, RecordedConflict
from ..search import propose
from ..source.document import FileSource, is_cell
from ..source.editor import names_bound
from ..source.location import SourceRange
from ..source.sources import Sources
from ..source.unified import cell_names, unified
from .bench import Bench
from .effect import Effect, measure, proof

_log = logging.getLogger(__name__)
_EXTENSIONS = 6  # conflicts that one fix may mend, one after the other


@dataclass(frozen=True)
class Attempt:
    """A fix that ran. ``again`` is the family of the error with which its cell failed when it was run a second time.

    ``rank`` is the label by which it is ordered: a cut that no step feels is worth as much as none, and a sum that goes
    back once, whole, as much as a cut.
    """

    fix: Fix
    again: str | None = None
    rank: Gradients = "unknown"


def verified(bench: Bench, problem: Problem, enough: Callable[[], bool]) -> Iterator[Attempt]:
    """The fixes for a problem, each one verified, in the order of the rules, until somebody has had ``enough``."""
    proposals = list(propose(problem))
    enough_alone: list[Proposal] = []
    for number, proposal in enumerate(proposals, 1):
        if bench.over or enough():
            return
        attempt = try_out(bench, problem, proposal, enough, [*enough_alone, *proposals[number:]])
        if attempt is not None:
            enough_alone.append(proposal)
            yield attempt


def try_out(
    bench: Bench,
    problem: Problem,
    proposal: Proposal,
    enough: Callable[[], bool] = lambda: False,
    others: Sequence[Proposal] = (),
) -> Attempt | None:
    """The proposal as a verified fix, extended where it fails again elsewhere; None if it does not run.

    ``enough`` is asked before it is extended, which takes two runs more. Where one of the ``others`` would extend it,
    that one may be all that is needed, and is left to be tried by itself.
    """
    bench.tried.append(proposal.title)
    steps = [proposal]
    left_behind = tuple(LiveChange("detach", path) for path in bench.plan.cut)
    texts, live, spared = dict(proposal.texts), proposal.live + left_behind, proposal.spared
    with bench.accepting(texts, live, spared) as accepting:
        return _try(bench, problem, steps, texts, live, spared, accepting, enough, others)


def _try(  # noqa: C901 - each step may end the attempt
    bench: Bench,
    problem: Problem,
    steps: list[Proposal],
    texts: dict[int, str],
    live: tuple[LiveChange, ...],
    spared: tuple[int, ...],
    accepting: Callable[[], Evidence | None] | None,
    enough: Callable[[], bool],
    others: Sequence[Proposal],
) -> Attempt | None:
    proposal = steps[0]
    mended = {_signature(problem.clash, problem.sources): _text(problem.clash, problem.sources)}
    for _ in range(_EXTENSIONS):
        seen = bench.listen(texts, live, spared, again=bench.runs_twice)
        if seen is None:
            _log.debug("%s: %s: could not be run", proposal.rule, proposal.title)
            return None
        if seen.error is None and problem.family != "silent":
            break
        if seen.error is not None:
            _log.debug("%s: %s: failed with %.200s", proposal.rule, proposal.title, seen.error)
            if seen.error_family is None or enough():
                return None
        left = bench.record(texts, live, spared)
        if left is None:
            return None
        if seen.error is None and left.error is None and not any(c.kind == "silent" for c in left.clashes):
            break  # what is silently wrong raises nothing, so that running alone tells nothing
        more = _next_step(bench, problem, steps, texts, left, mended)
        if more is None or enough():
            return None
        if more.rule not in LOCAL and any((o.rule, o.title) == (more.rule, more.title) for o in others):
            return None
        _log.debug("%s: next step: %s: %s", proposal.rule, more.rule, more.title)
        steps.append(more)
        texts |= more.texts
        live, spared = live + more.live, spared + more.spared
    else:
        return None
    if starved(bench.passes(proposal.reading), seen.passes):
        _log.debug("%s: %s: trains nothing", proposal.rule, proposal.title)
        return None
    effect = measure(bench, proposal, seen, texts, live, spared)
    if proposal.lossless and effect.label != "same":
        return None
    run = bench.cells(texts, spared)
    if not is_cell(bench.failing):  # a script is run from the top, and leaves no session behind
        live, run = (), ()
    elif bench.plan.fresh:
        accepted, carriers = _as_accepted(bench, texts, live, spared, accepting if len(steps) == 1 else None)
        if accepted is not None:
            live = accepted
        else:  # what earlier cells left behind has changed since: they have to run again too
            for cells in (_makers(bench, carriers, run), bench.plan.cells):
                again = bench.listen_live(texts, live, spared, run=cells)
                if again is not None and again.error is None:
                    run = cells
                    break
            else:
                return None
    idle: tuple[str, ...] = ()
    if effect.label in ("truncated", "different"):
        idle = untrained(bench.passes(proposal.reading), seen.passes)
    return Attempt(_fix(bench, steps, texts, live, run, effect, idle), seen.again, _rank(bench, proposal, seen, effect))


def _rank(bench: Bench, proposal: Proposal, seen: Evidence, effect: Effect) -> Gradients:
    if effect.changes:
        return effect.label
    if effect.label == "different" and proposal.whole:
        return "truncated"
    if effect.label == "truncated" and proposal.rule == "detach":
        return "same" if same_for_training(bench.passes(proposal.reading), seen.passes) else "truncated"
    return effect.label


def _makers(bench: Bench, carriers: tuple[str, ...], run: tuple[int, ...]) -> tuple[int, ...]:
    """The cells to run, with those that made what still carries the failed run's graph."""
    names = {re.split(r"[.\[]", path)[0] for path in carriers}
    trees = {n: bench.sources.cells[n].tree for n in bench.plan.cells if n in bench.sources.cells}
    made = {n for n, tree in trees.items() if tree is not None and names_bound(tree.body) & names}
    return tuple(sorted(made | set(run)))


def _signature(clash: RecordedConflict, sources: Sources) -> object:
    """What tells a conflict from another one although an edit may have moved its lines."""

    def line(spot: SourceRange | None) -> object:
        if spot is None or spot.cell is None:
            return spot
        lines = [_bare(text) for text in sources.cells[spot.cell].lines]
        text = _bare(_line(spot, sources))
        return spot.cell, spot.function, text, lines.count(text)  # of two equal lines, one may have been rewritten

    write, save = clash.write, clash.save
    return (
        clash.kind,
        write and (line(write.spot), write.operation, write.module),
        save and (line(save.spot), save.node, save.shape),
    )


def _text(clash: RecordedConflict, sources: Sources) -> tuple[str, ...]:
    """How the lines of a conflict read."""
    return tuple(_line(event.spot if event is not None else None, sources) for event in (clash.write, clash.save))


def _line(spot: SourceRange | None, sources: Sources) -> str:
    """The line at a spot as it stands; nothing where that is not known."""
    lines = sources.cells[spot.cell].lines if spot is not None and spot.cell is not None else []
    return lines[spot.line - 1] if spot is not None and spot.line <= len(lines) else ""


def _bare(line: str) -> str:
    return line.strip().replace(".clone()", "")


def _next_step(
    bench: Bench,
    problem: Problem,
    steps: list[Proposal],
    texts: dict[int, str],
    left: Evidence,
    mended: dict[object, tuple[str, ...]],
) -> Proposal | None:
    """What mends the next conflict: the same rule if it can; nothing where a conflict is left that had its turn.

    ``left``: what the rewrite has left. ``mended``: the conflicts that had their turn, and how their lines read then;
    where a line reads otherwise by now, it may be another conflict of the same line.
    """
    clashes = [c for c in relevant(left, problem.family) if c.known]
    if not clashes:
        return None
    sources = bench.sources.with_texts(texts)
    for clash in clashes:
        if clash.write is not None and mended.get(_signature(clash, sources)) == _text(clash, sources):
            return None
    mended[_signature(clashes[0], sources)] = _text(clashes[0], sources)
    family = clashes[0].family or clashes[0].kind
    following = replace(problem, family=family, clash=clashes[0], evidence=left, sources=sources, raised=())
    done = {(s.rule, s.title) for s in steps} if clashes[0].write is None else ()  # no line to tell conflicts apart by
    options = [o for o in propose(following) if (o.rule, o.title) not in done]
    alike = [o for o in options if o.rule == steps[-1].rule]
    if not alike and steps[0].rule in LOCAL:
        alike = [o for o in options if o.rule in LOCAL]
    return next(iter(alike or options), None)


def _as_accepted(
    bench: Bench,
    texts: dict[int, str],
    live: tuple[LiveChange, ...],
    spared: tuple[int, ...],
    begun: Callable[[], Evidence | None] | None,
) -> tuple[tuple[LiveChange, ...] | None, tuple[str, ...]]:
    """What makes the fix run in the session as it is: its own changes, and what still carries the failed run's graph.

    None if it does not run there; what was found to carry that graph in any case.
    """
    carriers: tuple[str, ...] = ()
    for _ in range(2):
        seen = begun() if begun is not None else bench.listen_live(texts, live, spared, reach=bench.past_failure)
        begun = None
        if seen is None:
            return None, carriers
        _log.debug("accepted in the session: %s, carriers %s", seen.error or "ran", seen.carriers)
        if seen.error is None:
            return live, carriers
        carriers += seen.carriers
        cut = tuple(LiveChange("detach", path) for path in seen.carriers)
        if not cut or set(cut) <= set(live):
            return None, carriers
        live = live + cut
    return None, carriers


def _fix(
    bench: Bench,
    steps: list[Proposal],
    texts: dict[int, str],
    live: tuple[LiveChange, ...],
    run: tuple[int, ...],
    effect: Effect,
    untrained: tuple[str, ...],
) -> Fix:
    more = len(steps) - 1
    title = message("and_more_changes", title=steps[0].title, count=more) if more else steps[0].title
    return Fix(
        title=title,
        why=steps[0].why,
        rule=steps[0].rule,
        diff=unified_texts(bench.sources, texts),
        cells={number: text for number, text in sorted(texts.items()) if is_cell(number)},
        files={
            f.path: text
            for number, text in sorted(texts.items())
            if isinstance(f := bench.sources.cells[number], FileSource)
        },
        verified=True,
        gradients=effect.label,
        changes=effect.changes,
        proof=proof(effect.label, effect.changes),
        run=run,
        live=live,
        untrained=untrained,
    )


def unified_texts(sources: Sources, texts: dict[int, str]) -> str:
    """The change as a unified diff, a cell or a file each."""
    parts = []
    for number, text in sorted(texts.items()):
        cell = sources.cells[number]
        names = (cell.name, cell.name) if isinstance(cell, FileSource) else cell_names(number)
        parts.append(unified(cell.raw, text, names))
    return "\n".join(part for part in parts if part)
