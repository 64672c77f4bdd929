"""A candidate is run as accepting it would run it, past the failure, and what it changes is measured."""

from __future__ import annotations

import ast
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from ..diagnosis import Fix, Gradients, LiveChange
from ..gradients.compare import (
    compare,
    deprived,
    leaves_reached,
    lessened,
    reach_alike,
    same_for_training,
    starved,
    stepped_again,
    steps_on_nothing,
    untrained,
    updates,
    without_purpose,
)
from ..gradients.relative_error import still_off
from ..message import message
from ..record.evidence import BackwardPass, Evidence
from ..search import (
    AS_CLEARED,
    BOUNDARY,
    COPIES,
    FOR_TRAINING,
    IN_ORDER,
    KEEPS_GRAPH,
    LAST_RESORT,
    LESSER,
    NAMED_LEAF,
    ONE_UPDATE,
    PAST_A_STEP,
    RUNNING,
    Rank,
)
from ..session.cells_to_run import makes_values
from ..source.cell_flow import changed_again, readers_of
from ..source.dataflow import called_name, calls_made
from ..source.document import FileSource, is_cell
from ..source.sources import Sources
from ..source.unified import cell_names, unified
from ..transforms.problem import Problem
from ..transforms.proposal import Proposal
from .bench import Bench
from .candidate import Candidate, Unfinished
from .effect import Effect, called, gradients_of, measure, proof

RANKS = get_args(Rank)
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Attempt:
    """A fix that ran. ``again`` is the family of the error with which its cell failed when it was run a second time.

    ``rank`` is what it is worth by what was measured. ``aside``: how much changes that the fix is not for; ``kinds``: by how
    many rules it does.
    ``serves``: a backward whose gradients no step used, as the code is written, has a use. ``fewer``: how many updates
    the optimizers make less than in the code as written, or with gradients used before. ``lesser``: shown where nothing of the
    best rank does without: ``unleafed``, a name that led to a leaf leads to a result, whose ``.grad`` code to come finds empty;
    or its form is one of ``LESSER``. ``idle``: a backward is left that trains nothing. ``retrains``: to accept it runs an earlier cell
    again that trains.
    ``sooner``: it also takes from backwards that come before the conflict. ``corrects``: it gives another
    result than the code as written, which can hardly have meant that (Proposal.meant). ``passes``: the backwards of its run. ``cost``: the
    candidate's; ``turn``: how many had been tried by then.
    """

    fix: Fix
    cost: int
    turn: int
    again: str | None = None
    rank: Rank = "unknown"
    aside: int = 0
    kinds: int = 1
    serves: bool = False
    fewer: int = 0
    lesser: bool = False
    unleafed: bool = False
    idle: bool = False
    retrains: bool = False
    sooner: bool = False
    corrects: bool = False
    passes: tuple[BackwardPass, ...] = ()


@dataclass(frozen=True)
class Ran:
    """A candidate that ran, ``seen``, and what is known from that; ``accepting`` gives what was seen of it in the session."""

    candidate: Candidate
    live: tuple[LiveChange, ...]
    seen: Evidence
    gradients: Gradients
    turn: int
    accepting: Callable[[], Evidence | None] | None


def try_out(
    bench: Bench, problem: Problem, candidate: Candidate, later: Callable[[Gradients], bool]
) -> Attempt | Ran | Unfinished | None:
    """The candidate as a verified fix; what is left of it to mend where it fails again elsewhere; None if it does not run.

    As ``Ran`` where its gradients are such that what else differs is measured ``later``: that takes as many runs as three
    candidates do.
    """
    bench.tried.append(candidate.steps[0].title)
    texts, live, spared = candidate.texts, candidate.live + bench.left_behind, candidate.spared
    with bench.accepting(texts, live, spared) as accepting:
        seen = bench.listen(texts, live, spared, again=bench.runs_twice)
        if seen is None:
            _log.debug("%s: could not be run", candidate)
            return None
        if seen.error is not None and not bench.fails_as_written(candidate.steps[0].reading, seen):
            _log.debug("%s: failed with %.200s", candidate, seen.error)
            return None if seen.error_family is None else Unfinished(candidate, family=seen.error_family)
        written = bench.reference(candidate.steps[0].reading) if seen.stumbled else None
        if seen.stumbled and (written is None or {*seen.stumbled} - {*written.stumbled}):
            _log.debug("%s: an earlier cell fails", candidate)
            return None
        keeps = any(step.form in KEEPS_GRAPH for step in candidate.steps)
        if problem.family == "silent" or keeps:  # what is silently wrong raises nothing: running alone tells nothing
            left = bench.record(texts, live, spared, hidden=True)
            if left is None:
                return None
            if left.error is not None or not _is_mended(problem, left):
                return Unfinished(candidate, left) if problem.family == "silent" else None
        copies = all(step.rule in COPIES for step in candidate.steps)
        if copies and still_off(seen.passes, bench.wrong, bench.passes(candidate.steps[0].reading)):
            _log.debug("%s: leaves the gradients as they are", candidate)
            return None
        meant = _meant(bench, candidate.steps[0])
        if any(starved(one.passes, seen.passes, one.finished and seen.finished) for one in meant):
            _log.debug("%s: trains nothing", candidate)
            return None
        first = min(problem.ahead, max(step.as_before for step in candidate.steps))
        if first and not _as_before(bench.passes(candidate.steps[0].reading), seen, first):
            _log.debug("%s: an earlier backward gives something else", candidate)
            return None
        gradients = gradients_of(bench, candidate.steps, seen)
        if problem.clash.kind == "detached" and gradients == "same":
            _log.debug("%s: gives what is detached no gradient", candidate)
            return None
        if gradients != "same" and problem.wants_given:
            _log.debug("%s: gives no other gradient", candidate)
            return None
        ran = Ran(candidate, live, seen, gradients, len(bench.tried), accepting)
        if not later(gradients):
            return measured(bench, problem, ran)
        accepted = accepting() if accepting is not None else None
        return replace(ran, accepting=(lambda: accepted) if accepting is not None else None)


def measured(bench: Bench, problem: Problem, ran: Ran) -> Attempt | None:
    """What a candidate that ran changes, and what it takes to accept it in the session."""
    candidate, live, seen = ran.candidate, ran.live, ran.seen
    proposal, texts, spared = candidate.steps[0], candidate.texts, candidate.spared
    reference = bench.passes(proposal.reading)
    for_training = any(step.form in FOR_TRAINING for step in candidate.steps)
    if for_training and updates(reference) and same_for_training(reference, seen.passes):
        _log.debug("%s: each step uses what it used", candidate)
        return None
    if problem.clash.kind == "detached" and any(deprived(one.passes, seen.passes) for one in _meant(bench, proposal)):
        _log.debug("%s: takes gradients from others", candidate)
        return None
    effect = measure(bench, candidate.steps, seen, ran.gradients, texts, live, spared)
    if effect is None:
        _log.debug("%s: updates nothing", candidate)
        return None
    if any(step.lossless for step in candidate.steps) and "same" not in (effect.label, effect.gradients):
        return None
    if problem.is_followed and effect.label == "same" and not effect.changes:
        return None
    accepted = _as_accepted(bench, texts, live, spared, ran)
    if accepted is None:
        return None
    live, run, once = accepted
    idle: tuple[str, ...] = ()
    only_named = all(step.form in NAMED_LEAF for step in candidate.steps)
    if effect.label in ("truncated", "different") and not only_named:
        idle = tuple(sorted({leaf for one in _meant(bench, proposal) for leaf in untrained(one.passes, seen.passes)}))
    gone = max(updates(reference) - updates(seen.passes), 0) if seen.finished else 0
    fewer = 0 if proposal.form in AS_CLEARED else gone
    fewer += sum(max(count(seen.passes) - count(reference), 0) for count in (stepped_again, steps_on_nothing))
    rank = _rank(bench, candidate.steps, ran, effect, fewer)
    meant = rank == "same" or _is_meant(effect, proposal) or (bool(proposal.begins) and rank == "truncated")
    # Statistics are no change that counts, nor is what a cut leaves without a gradient that no step uses.
    aside = len(effect.changes) if effect.paths and not meant and effect.label != "truncated" else 0
    without_backward = not reference and not seen.passes and not (seen.outcome is not None and seen.outcome.ahead)
    alike = reach_alike(reference, seen.passes)
    said = proof(effect.label, effect.changes, effect.until_error, without_backward, alike)
    fix = replace(_fix(bench, candidate, live, run, effect, idle, said), once=once)
    at_end = any(step.form in BOUNDARY for step in candidate.steps)
    running = at_end or any(step.form in RUNNING for step in candidate.steps)
    before = problem.ahead if running else 0
    # Of a cut at the end of an iteration the first alone: later ones go back past such ends, as the one that fails does.
    before = min(before, 1) if at_end else before
    sooner = before > 0 and not _as_before(reference, seen, before)
    if effect.label == "truncated" and not idle:
        taken = (*_taken(bench, proposal, seen), *(_left(bench, reference, seen) if _lessens(candidate.steps) else ()))
        within = (message("change_cuts_sooner" if at_end else "change_cuts_within"),) if sooner else ()
        fix = replace(fix, changes=fix.changes + (taken or within)[:1])
    earlier = [number for number in run if number != bench.failing]
    retrained = tuple(f"In[{number}]" for number in earlier if _trains(bench.sources, number))
    if retrained:
        said_of = message("change_trains_again", cells=retrained, count=len(retrained))
        fix = replace(fix, changes=(*fix.changes, said_of))
    elif changed := changed_again(bench.sources.with_texts(texts), earlier):
        names = tuple(f"`{name}`" for name in changed)
        fix = replace(fix, changes=(*fix.changes, message("change_once_more", names=names)))
    if any(step.form in LAST_RESORT for step in candidate.steps):
        fix = replace(fix, changes=(*fix.changes, message("change_slower")))
    if proposal.rule == "restructure" and gone:
        count = message("change_updates", now=updates(seen.passes), before=updates(reference))
        fix = replace(fix, changes=(*fix.changes, count))
    _log.debug("%s: %s, %s, fails again: %s, %s", candidate, rank, effect.label, seen.again, effect.changes)
    serves = effect.label == "different" and bool(without_purpose(seen.passes, reference))
    corrects = rank == "same" and effect.label == "different" and any(step.meant for step in candidate.steps)
    return Attempt(
        fix=fix,
        cost=candidate.cost,
        turn=ran.turn,
        again=seen.again,
        rank=rank,
        aside=aside,
        kinds=len({step.rule for step in candidate.steps}),
        serves=serves,
        fewer=fewer,
        lesser=effect.unleafed or all(step.form in LESSER for step in candidate.steps),
        unleafed=effect.unleafed,
        idle=effect.idle,
        retrains=bool(retrained),
        sooner=sooner and (at_end or any(step.kept for step in candidate.steps)),
        corrects=corrects,
        passes=seen.passes,
    )


def _is_mended(problem: Problem, left: Evidence) -> bool:
    """Whether nothing is silently wrong any more; of parts that are detached, each of which may be meant, the one in
    question is not any more.
    """
    if any(c.kind == "silent" for c in left.clashes):
        return False
    lines = [
        c.write.spot and (c.write.spot.cell, c.write.spot.line)
        for c in left.clashes
        if c.kind == "detached" and c.write
    ]
    spot = problem.clash.write.spot if problem.clash.write is not None else None
    return problem.clash.kind != "detached" or (spot is not None and (spot.cell, spot.line) not in lines)


def _as_before(reference: Sequence[BackwardPass], seen: Evidence, count: int) -> bool:
    """Whether the first backwards give what they give in the reference."""
    return compare(reference[:count], seen.passes[:count], cut_off=True) == "same"


def _trains(sources: Sources, number: int) -> bool:
    """Whether a cell sends a loss back, or an optimizer steps in it, and does not only say how."""
    code = sources.code(number)
    made = [*calls_made(code.tree)] if code is not None else []
    steps = (isinstance(c.func, ast.Attribute) and called_name(c) == "step" and not c.args for c in made)
    return any(called_name(call) == "backward" for call in made) or any(steps)


def _as_accepted(
    bench: Bench,
    texts: dict[int, str],
    live: tuple[LiveChange, ...],
    spared: tuple[int, ...],
    ran: Ran,
) -> tuple[tuple[LiveChange, ...], tuple[int, ...], str] | None:
    """The changes of live objects and the cells to run that bring the fix into the session; None if nothing does.

    With the error that the failing cell then gives there, whatever its text: what made its objects is not run again for that.
    """
    run = bench.cells(texts, spared)
    if not is_cell(bench.failing):  # a script is run from the top, and leaves no session behind
        return (), (), ""
    if not bench.replays_more(texts, spared):
        return live, run, ""
    accepted, run, carriers, error = _in_session(bench, texts, live, spared, ran)
    if accepted is not None:
        return accepted, run, ""
    if error is not None and run == (bench.failing,) and error == bench.second_time:
        return live, run, error
    # what earlier cells left behind has changed since: they have to run again too
    for cells in (_with_makers(bench, carriers, run), bench.replayed(texts, spared)):
        again = bench.listen_live(texts, live, spared, run=cells)
        if again is not None and again.error == ran.seen.error:
            return live, cells, ""
    return None


def _rank(bench: Bench, steps: Sequence[Proposal], ran: Ran, effect: Effect, fewer: int) -> Rank:
    """What it is worth by what was measured (search.Rank)."""
    proposal, label, seen = steps[0], effect.label, ran.seen
    reference = bench.passes(proposal.reading)
    idle = steps_on_nothing(seen.passes) > steps_on_nothing(reference)
    takes = idle or any(deprived(one.passes, seen.passes) for one in _meant(bench, proposal))
    if any(step.meant for step in steps) and label == "different" and not fewer and not takes:
        return "same"
    cuts = any(step.rule == "detach" for step in steps)
    if label == "truncated" and cuts and same_for_training(reference, seen.passes):
        return "same"
    if any(step.form in LAST_RESORT for step in steps):
        return "copied"
    if label == "same" and _outlives_step(steps):
        return "whole"
    if any(step.lossless for step in steps) and label != "same":
        return "doubtful"
    if _is_meant(effect, proposal):
        label = ran.gradients if ran.gradients == "same" else effect.gradients
    elif label == "different" and not fewer:
        if proposal.begins or (proposal.form in ONE_UPDATE and not effect.paths):
            return "truncated"
        if not effect.paths and not takes:
            return "same" if proposal.form in IN_ORDER and not effect.changes else "whole"
    by_hand = not updates(reference)  # then it is not known what is updated for which loss
    lessens = _lessens(steps) and (by_hand or lessened(reference, seen.passes))
    return "deprived" if label == "truncated" and (takes or lessens) else label


def _outlives_step(steps: Sequence[Proposal]) -> bool:
    """Whether the graph that is kept is all that a fix changes, and a step comes before it is used up."""
    return all(step.form in PAST_A_STEP for step in steps)


def _taken(bench: Bench, proposal: Proposal, seen: Evidence) -> Iterator[str]:
    """Which backward trains a leaf no more, of the first that is so."""
    found = (taken for one in _meant(bench, proposal) for taken in deprived(one.passes, seen.passes)[:1])
    for one, leaves in itertools.islice(found, 1):
        yield message("change_trains_no_more", call=called(bench, one.backward), names=tuple(sorted(leaves)))


def _lessens(steps: Sequence[Proposal]) -> bool:
    """Whether a cut within one iteration may take from the later of two losses."""
    return any(step.lessens for step in steps)


def _left(bench: Bench, reference: Sequence[BackwardPass], seen: Evidence) -> Iterator[str]:
    """Which backward trains leaves by a part of its loss alone, of the first that does."""
    for one, leaves in lessened(reference, seen.passes)[:1]:
        yield message("change_trains_otherwise", call=called(bench, one.backward), names=tuple(sorted(leaves)))


def _is_meant(effect: Effect, proposal: Proposal) -> bool:
    """Whether nothing changes but what the proposal lets begin anew."""
    return bool(effect.paths) and effect.paths <= proposal.begins


def _meant(bench: Bench, proposal: Proposal) -> Iterator[Evidence]:
    """What the code as written may mean for training. An optimizer that learns only through what is written into a leaf is
    there for that value, and the leaf is not updated by it.
    """
    steps = any(one.steps for one in bench.passes(proposal.reading))
    for reading in dict.fromkeys((proposal.reading, "tracked" if steps else proposal.reading)):
        seen = bench.reference(reading)
        if seen is not None:
            yield seen


def _with_makers(bench: Bench, carriers: tuple[str, ...], run: tuple[int, ...]) -> tuple[int, ...]:
    """The cells to run, with those that made what still carries the failed run's graph, and read it since."""
    made_anew = readers_of(bench.sources, bench.plan.cells, bench.failing, carriers)
    return tuple(sorted({*made_anew, *run}))


def _in_session(
    bench: Bench,
    texts: dict[int, str],
    live: tuple[LiveChange, ...],
    spared: tuple[int, ...],
    ran: Ran,
) -> tuple[tuple[LiveChange, ...] | None, tuple[int, ...], tuple[str, ...], str | None]:
    """What makes the fix run in the session as it is: its own changes, and what still carries the failed run's graph; and
    the cells to run. With that cut off, what earlier cells have made need not be made anew, unless that gives other gradients and
    they make nothing else.

    None if it does not run there; what was found to carry that graph in any case, and with what error it ended.
    """
    own, carriers, error = live, tuple[str, ...](), None
    cut_off: tuple[tuple[LiveChange, ...], tuple[int, ...]] | None = None
    run, begun = bench.cells(texts, spared), ran.accepting
    ways = [run]
    while ways:
        cells = ways.pop(0)
        seen = begun() if begun is not None else bench.listen_live(texts, live, spared, cells, bench.past_failure)
        begun = None
        if seen is None:
            break
        _log.debug("accepted in the session: %s, carriers %s", seen.error or "ran", seen.carriers)
        expected = ran.seen.passes[: len(seen.passes)]
        if seen.error == ran.seen.error:
            if not carriers or compare(expected, seen.passes, cut_off=True) == "same":
                return live, cells, carriers, None
            if cut_off is None and not leaves_reached(expected) - leaves_reached(seen.passes):
                cut_off = live, cells
        error = seen.error
        cut = tuple(LiveChange("detach", path) for path in seen.carriers)
        if not carriers and cut and not set(cut) <= set(live):
            live, carriers = live + cut, seen.carriers
            ways = [*dict.fromkeys(((bench.failing,), run))]
    if cut_off is None:
        return None, run, carriers, error
    cells = _with_makers(bench, carriers, run)
    if all(makes_values(bench.sources.cells[number], bench.carrying) for number in {*cells} - {*run}):
        seen = bench.listen_live(texts, own, spared, cells, bench.past_failure)
        if seen is not None and seen.error == ran.seen.error:
            return own, cells, carriers, None
    return *cut_off, carriers, None


def _fix(
    bench: Bench,
    candidate: Candidate,
    live: tuple[LiveChange, ...],
    run: tuple[int, ...],
    effect: Effect,
    untrained: tuple[str, ...],
    said: str,
) -> Fix:
    steps, texts = candidate.steps, candidate.texts
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
        verified=not effect.until_error,
        gradients=effect.label,
        changes=effect.changes,
        proof=said,
        run=run,
        live=tuple(dict.fromkeys(live)),
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
