"""What a fix changes, measured: its gradients with everything else that a person reads later.

NOTE [Effect]. Where the gradients are those of the reference, everything that the two runs leave behind must be equal
as well: what is printed, what names lead to, what is in ``.grad``. Where they are not, nearly everything differs after
the first step, and what differs by itself is found in a second pair of runs in which no gradient has any effect
(gradients/inert.py). Whatever the reference itself does not give twice (times, addresses, random numbers that nobody
has seeded) is left out; and if its gradients are of that kind, nothing is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..diagnosis import Gradients
from ..gradients.compare import compare, forward_changed, leaves_reached, trains_nothing, without_purpose
from ..message import message
from ..outcome.changes import Difference, clauses, differences, updated, without
from ..outcome.kept import Outcome
from ..record.evidence import Backward, Evidence
from ..search import DIFFERENTIABLE, MOVES, NAMED_LEAF, RESTARTS
from ..source.loop_names import passing_names
from ..transforms.proposal import Proposal, Reading
from .bench import Bench, Live, Spared, Texts

# These can be told although a run was ended early; everything else may still have been to come.
_EVER = frozenset({"line", "not_leaf", "optimizer"})
_OF_GRADIENTS = frozenset({"no_gradient", "gradient"})


@dataclass(frozen=True)
class Effect:
    """``label`` is for the fix as a whole (see Fix.gradients), ``changes`` are clauses.

    ``gradients`` is the label of the gradients alone where those differ, else that of the whole; ``paths`` are what the
    changes concern, ``""`` for what has no name, without the statistics that every further forward updates.
    """

    label: Gradients
    changes: tuple[str, ...] = ()
    gradients: Gradients = "unknown"
    paths: frozenset[str] = frozenset()
    unleafed: bool = False  # a name leads to a result that led to a parameter, or to a leaf that no other name leads to
    until_error: bool = False  # the run ended with the error with which the code as written ends behind the failure
    idle: bool = False  # a backward is left that trains nothing


def proof(
    label: Gradients,
    changes: Sequence[str],
    until_error: bool = False,
    without_backward: bool = False,
    alike: bool = False,
) -> str:
    """What was verified, in a few words. Where something else changes, the gradients may well be the same.

    ``without_backward``: there was none, nor is anything left from which one could begin. ``alike``: each backward reaches
    the leaves that it is to reach.
    """
    if until_error:
        return message("past_failure")
    if without_backward and label == "same":
        return message("verified_values")
    if label == "different":
        return message("verified_result" if changes else "verified_alike" if alike else "verified_different")
    return message(f"verified_{label}")


def gradients_of(bench: Bench, steps: Sequence[Proposal], seen: Evidence) -> Gradients:
    """What a rewrite does to the gradients, by its plain run, in the reading of the code that its first step declares."""
    reference = bench.reference(steps[0].reading)
    if reference is None or not bench.faithful or trains_nothing(seen.passes):
        return "unknown"
    found = _gradients(bench, steps, reference, seen)
    return "unknown" if reference.outcome is None or seen.outcome is None else found


def measure(
    bench: Bench,
    steps: Sequence[Proposal],
    seen: Evidence,
    gradients: Gradients,
    texts: Texts,
    live: Live,
    spared: Spared,
) -> Effect | None:
    """The effect as a whole, once that on the gradients is known; None where nothing is updated any more. Further runs are made
    where anything differs.
    """
    reading = steps[0].reading
    reference = bench.reference(reading)
    if seen.error is not None:  # as the code as written: what else there is to be seen, nobody sees
        return Effect(
            "unknown",
            (message("change_fails_as_written", error=seen.error),),
            gradients,
            frozenset([""]),
            until_error=True,
        )
    if gradients == "unknown" or reference is None or reference.outcome is None or seen.outcome is None:
        return Effect("unknown")
    idle = [step.idle for step in steps if step.idle and gradients in ("same", "truncated")]
    if gradients == "same" and not idle:
        found = _different(bench, reference, seen)
        if not found:
            return Effect(gradients)
        with bench.inert_references_ahead(reading, 2):
            steady, noise = _noise(bench, reading)
        found = without(found, noise)
        if not steady:
            return Effect("unknown")
        if found and _updates_nothing(reference, bench.inert_reference(reading), seen):
            return None
        if found:
            gradients = "truncated" if all(one.kind == "no_gradient" for one in found) else "different"
        return _with_changes(gradients, gradients, found, reference.outcome, seen.outcome)
    # of a cut, the second one is rarely asked for
    with bench.inert_references_ahead(reading, 1 if gradients == "truncated" else 2):
        differentiable = any(step.form in DIFFERENTIABLE for step in steps)
        tried = None if differentiable else bench.listen(texts, live, spared, inert=True)
        written = bench.inert_reference(reading)
        if _updates_nothing(reference, written, seen):
            return None
        found = () if written is None or tried is None else _different(bench, written, tried, gradients=False)
        if found or written is None or gradients != "truncated" or not _same_at_first(reference, written):
            steady, noise = _noise(bench, reading)
            if not steady:
                return Effect("unknown")
            found = without(found, noise)
    label: Gradients = gradients if all(one.kind in _OF_GRADIENTS for one in found) else "different"
    effect = _with_changes(label, gradients, found, reference.outcome, seen.outcome)
    passes = without_purpose(reference.passes, seen.passes) if gradients == "truncated" else ()
    idle = [called(bench, reference.passes[index].backward) for index in passes] + idle
    if idle:
        said = tuple(message("change_trains_nothing", call=text) for text in dict.fromkeys(idle))
        return Effect("different", effect.changes + said, "different", effect.paths | {""}, idle=True)
    return effect


def _updates_nothing(reference: Evidence, inert: Evidence | None, seen: Evidence) -> bool:
    """Whether the parameters that gradients update by hand in the reference are all there, and what they are without any effect
    of a gradient: the update may write elsewhere now. What a decay, or noise, changes beside that is not told apart; and
    nothing is known of what optimizers step, which may be put back to what it was.
    """
    meant, untouched, left = reference.outcome, inert.outcome if inert is not None else None, seen.outcome
    if meant is None or untouched is None or left is None or any(one.steps for one in reference.passes):
        return False
    trained = {path for path in updated(meant, untouched) if path in left.leaves and left.leaves[path].parameter}
    return bool(trained) and seen.finished and not trained & updated(left, untouched)


def called(bench: Bench, backward: Backward) -> str:
    """The call of a backward, as far as it stands on one line."""
    place = bench.sources.place(backward.stack[0]) if backward.stack else None
    return "backward()" if place is None else place.text[slice(*place.columns or (None,))]


def _different(bench: Bench, reference: Evidence, seen: Evidence, gradients: bool = True) -> tuple[Difference, ...]:
    """What two runs have left behind that is not the same; nothing where that is not known."""
    if reference.outcome is None or seen.outcome is None:
        return ()
    stepped = {leaf for one in reference.passes for leaf in one.stepped}
    exactly = [one.gradients for one in reference.passes] == [one.gradients for one in seen.passes]
    found = differences(reference.outcome, seen.outcome, gradients=gradients, stepped=stepped, exactly=exactly)
    whole = reference.finished and seen.finished
    return _read_later(bench, found if whole else tuple(one for one in found if one.kind in _EVER))


def _same_at_first(reference: Evidence, inert: Evidence) -> bool:
    """Whether the code gave the same gradients in its inert run, up to where no step has had an effect yet."""
    until = next((number for number, one in enumerate(reference.passes, 1) if one.steps), len(reference.passes))
    return compare(reference.passes[:until], inert.passes[:until], cut_off=True) == "same"


def _with_changes(
    label: Gradients, gradients: Gradients, found: tuple[Difference, ...], reference: Outcome, seen: Outcome
) -> Effect:
    paths = frozenset(one.path for one in found) - reference.statistics
    kept = [reference.values.get(path) for path in reference.leaves.keys() & seen.leaves.keys()]
    gone = [one.path for one in found if one.kind == "not_leaf"]
    # Of a parameter it is no use that a module, or another name, still holds it as it was.
    unleafed = any(reference.leaves[path].parameter or reference.values.get(path) not in kept for path in gone)
    return Effect(label, clauses(found, reference, seen), gradients, paths, unleafed)


def _read_later(bench: Bench, found: tuple[Difference, ...]) -> tuple[Difference, ...]:
    """Without the names of a loop that is gone, which nothing but the loop has read."""
    if not any(one.kind == "missing" for one in found):
        return found
    passing = passing_names(cell.tree for cell in bench.sources.cells.values() if cell.tree is not None)
    return tuple(one for one in found if one.kind != "missing" or one.path not in passing)


def _noise(bench: Bench, reading: Reading) -> tuple[bool, tuple[Difference, ...]]:
    """Whether the code as written gives its gradients twice, and what else it does not."""
    one, other = bench.inert_reference(reading), bench.inert_reference(reading, 1)
    if one is None or other is None or one.outcome is None or other.outcome is None:
        return True, ()
    steady = not one.passes or compare(one.passes, other.passes, cut_off=not one.finished) == "same"
    return steady, differences(one.outcome, other.outcome, to_the_letter=True)


def _gradients(bench: Bench, steps: Sequence[Proposal], meant: Evidence, seen: Evidence) -> Gradients:
    """The effect on the gradients alone."""
    reference, passes = meant.passes, seen.passes
    if not reference and not passes:
        return "same"
    stuck = meant.error is not None  # what comes after that is known to nobody
    passes = passes[: len(reference)] if stuck else passes
    effect = compare(reference, passes, cut_off=stuck or not seen.finished)
    if (
        effect == "same"
        and steps[0].reading == "update"
        and not leaves_reached(bench.passes("tracked")) <= leaves_reached(passes)
    ):
        return "truncated"  # what was written came from a graph, which an update cuts off
    if (
        effect in ("same", "truncated")
        and any(s.local or s.form in RESTARTS for s in steps)
        and forward_changed(reference, passes)
    ):
        return "different"  # nobody sees the write any more who was meant to
    if effect == "truncated" and not any(map(_may_cut, steps)):
        return "different"  # a loss that is computed or sent back at another time may walk a smaller graph
    return effect


def _may_cut(step: Proposal) -> bool:
    """Whether a change may take an edge from a graph: not one that only computes something again, or elsewhere."""
    if step.form in NAMED_LEAF:
        return False
    return step.rule not in MOVES or any(
        mark in edit.text for _, edit in step.edits for mark in ("detach", "inputs=", ".grad(")
    )
