"""Two runs compared: how the gradients of one relate to those of the other. Plain records in, a verdict out."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from ..diagnosis import Gradients
from ..record.evidence import BackwardPass, LeafGradient
from .digest import close

_ROUNDING = 1e-9


def compare(reference: Sequence[BackwardPass], tried: Sequence[BackwardPass], cut_off: bool = False) -> Gradients:
    """How the gradients of a run relate to those of the reference, pass by pass up to the shorter of the two.

    ``truncated`` means that they differ and that the graph that was walked is smaller, or reaches fewer leaves. Where
    all agree, the optimizers must have used them as well: a step that is moved may find those of another loss added.
    ``cut_off``: both were ended before their programs were.
    """
    found = _compare_passes(reference, tried, cut_off)
    if found == "same":
        if cut_off and len(_optimizers(reference[:-1])) > len(_optimizers(tried[:-1])):
            return "unknown"  # a step has gone behind the end of the run: nobody has seen which gradients it uses
        if not cut_off and updates(tried) < updates(reference):
            return "different"  # one step for what were several
        return "same" if _same_steps(reference, tried) else "different"
    return "same" if found != "unknown" and _same_where_used(reference, tried) else found


def _same_steps(reference: Sequence[BackwardPass], tried: Sequence[BackwardPass]) -> bool:
    """Optimizer by optimizer and step by step, up to the shorter of the two."""
    ours, theirs = _optimizers(reference), _optimizers(tried)
    return all(
        close(a.digest, b.digest)
        for optimizer in ours.keys() & theirs.keys()
        for one, other in zip(ours[optimizer], theirs[optimizer])
        for a, b in zip(one, other)
    )


def _same_where_used(reference: Sequence[BackwardPass], tried: Sequence[BackwardPass]) -> bool:
    """Whether every step used the same, though a backward gave more to leaves that were cleared before their step.

    What no step used in the end must be the same in each pass, except that a leaf may be left out of a pass that takes
    turns with the steps of its optimizer, whose next one begins by clearing it.
    """
    if len(reference) != len(tried) or not _same_steps(reference, tried):
        return False
    ours, theirs = _last_steps(reference), _last_steps(tried)
    used = {leaf: min(ours[leaf], theirs[leaf]) for leaf in ours.keys() & theirs.keys()}
    return bool(used) and all(
        i <= used.get(leaf, -1)
        or close(a, b)
        or (leaf in used and not any(b or ()) and _in_turns(reference, i, used[leaf]))
        for i, (one, other) in enumerate(zip(reference, tried))
        for leaf, a, b in _paired(one, other)
    )


def _in_turns(passes: Sequence[BackwardPass], index: int, last: int) -> bool:
    """Whether a pass takes turns with the step after pass ``last``: they alternated before, or belong to one cell."""
    own, other = passes[index].backward.stack, passes[last].backward.stack
    before = any(one.backward.stack == own for one in passes[: last + 1])
    return before or not own or not other or own[-1].cell == other[-1].cell


def same_for_training(reference: Sequence[BackwardPass], tried: Sequence[BackwardPass]) -> bool:
    """Whether every step used the same gradients: what else a backward gave was cleared before one, or no step uses it."""
    stepped = _last_steps(tried).keys() | _last_steps(reference).keys()
    return bool(stepped) and len(reference) == len(tried) and _same_steps(reference, tried)


def _last_steps(passes: Sequence[BackwardPass]) -> dict[str, int]:
    """For every leaf that an optimizer updates the pass after which it did so for the last time."""
    return {g.leaf: i for i, one in enumerate(passes) for step in one.steps for g in step}


def _paired(
    one: BackwardPass, other: BackwardPass
) -> Iterator[tuple[str, tuple[float, ...] | None, tuple[float, ...] | None]]:
    left, right = ({g.leaf: g.digest for g in p.gradients} for p in (one, other))
    return ((leaf, left.get(leaf), right.get(leaf)) for leaf in sorted(left | right))


def starved(reference: Sequence[BackwardPass], tried: Sequence[BackwardPass], ended: bool = False) -> bool:
    """Whether an optimizer that had gradients has none left: such code runs and trains nothing.

    ``ended``: both came to their end, so that an optimizer which has made no step by then makes none. It may be there
    under another name, as where what it steps is made anew, or step more than that.
    """
    ours, theirs = _optimizers(reference), _optimizers(tried)
    reached = leaves_reached([one for one in tried if not one.backward.asked])
    for optimizer in ours.keys() & theirs.keys():
        # torch.autograd.grad makes many passes of an iteration, so that its step may be one that nobody has looked at.
        may_be_fed = _unlooked(theirs[optimizer]) and bool(reached & {*optimizer})
        if _fed(ours[optimizer]) and not _fed(theirs[optimizer]) and not may_be_fed:
            return True
    trained = _trained(step for steps in theirs.values() for step in steps)
    missing = {optimizer: steps for optimizer, steps in ours.items() if optimizer not in theirs and _fed(steps)}
    gone = Counter(_shapes(steps) for steps in missing.values() if not _trained(steps) <= trained)
    new = Counter(_shapes(steps) for optimizer, steps in theirs.items() if optimizer not in ours)
    return ended and bool(gone - new)


def _shapes(steps: Sequence[tuple[LeafGradient, ...]]) -> tuple[tuple[int, ...], ...]:
    return tuple(sorted(g.shape for g in steps[0]))


def deprived(
    reference: Sequence[BackwardPass], tried: Sequence[BackwardPass]
) -> list[tuple[BackwardPass, frozenset[str]]]:
    """The passes whose loss gives nothing any more to leaves that the next steps after it are there for, with those leaves."""
    paired = _paired_losses(reference, tried)
    found = [(one, leaves & leaves_reached([one]) - leaves_reached([other])) for one, other, leaves in paired]
    return [(one, leaves) for one, leaves in found if leaves]


def lessened(
    reference: Sequence[BackwardPass], tried: Sequence[BackwardPass]
) -> list[tuple[BackwardPass, frozenset[str]]]:
    """The passes whose loss gives other gradients to leaves that the next steps after it are there for, with those leaves."""
    found = [
        (one, frozenset(leaf for leaf, a, b in _paired(one, other) if leaf in leaves and not close(a, b)))
        for one, other, leaves in _paired_losses(reference, tried)
    ]
    return [(one, leaves) for one, leaves in found if leaves]


def _paired_losses(
    reference: Sequence[BackwardPass], tried: Sequence[BackwardPass]
) -> Iterator[tuple[BackwardPass, BackwardPass, frozenset[str]]]:
    """The passes of one loss in two runs, with the leaves that the next steps after it are there for.

    Losses are the same where their values are: a fix may send them back in another order. No step uses a gradient that
    ``autograd.grad`` was asked for.
    """
    rest = list(tried)
    for index, one in enumerate(reference):
        if one.backward.asked:
            continue
        other = next((two for two in rest if one.value and two.value and close(one.value, two.value)), None)
        if other is not None and one.looked and other.looked:
            rest.remove(other)
            yield one, other, stepped_first(reference[index:])


def stepped_first(passes: Sequence[BackwardPass]) -> frozenset[str]:
    """The leaves that optimizers stepped after the first of these passes that any step came after."""
    return next((one.stepped for one in passes if one.steps), frozenset())


def updates(passes: Sequence[BackwardPass]) -> int:
    """How many steps of optimizers were seen."""
    return sum(len(one.steps) for one in passes)


def stepped_again(passes: Sequence[BackwardPass]) -> int:
    """How many steps used what their optimizer had just stepped with, no backward between."""
    return sum(len(one.steps) - len({tuple(g.leaf for g in step) for step in one.steps}) for one in passes)


def steps_on_nothing(passes: Sequence[BackwardPass]) -> int:
    """How many steps of optimizers had no gradient at all."""
    steps = [step for one in passes for step in one.steps]
    return sum(not _leaves_fed([step]) for step in steps)


def without_purpose(reference: Sequence[BackwardPass], tried: Sequence[BackwardPass]) -> tuple[int, ...]:
    """The passes of which a step used what they gave, and uses nothing any more; of those up to one that nobody looked at,
    and not where the step is yet to come.
    """
    if len(reference) != len(tried):
        return ()
    known = min(_looked(reference), _looked(tried))
    ours, theirs = reference[:known], tried[:known]
    settled = max((i + 1 for i, one in enumerate(theirs) if one.steps), default=0) if known < len(tried) else known
    return tuple(i for i in range(settled) if _is_used(ours, i) and not _is_used(theirs, i))


def _is_used(passes: Sequence[BackwardPass], index: int) -> bool:
    """Whether a step used a gradient of this pass: not where what it used is a sum of successive others. What is no sum of
    any (it has been clipped, say) may hold this one.
    """
    for gradient in passes[index].gradients:
        if gradient.digest is None or not any(gradient.digest):
            continue
        given = [next((g.digest for g in one.gradients if g.leaf == gradient.leaf), None) for one in passes]
        following = (
            [g.digest for step in one.steps for g in step if g.leaf == gradient.leaf] for one in passes[index:]
        )
        last, used = next(((at, found) for at, found in enumerate(following, index) if found), (index, []))
        with_it = [*_sums(given[: last + 1], index)]
        apart = (given[:index], given[index + 1 : last + 1])
        without = [total for some in apart for at in range(len(some)) for total in _sums(some, at)]
        for digest in used:
            if any(close(digest, total) for total in with_it) or not any(close(digest, total) for total in without):
                return True
    return False


def _sums(digests: Sequence[tuple[float, ...] | None], index: int) -> Iterator[tuple[float, ...]]:
    """The sum of each run of successive digests in which the one at ``index`` is."""
    for first in range(index, -1, -1):
        total: tuple[float, ...] | None = None
        for at, digest in enumerate(digests[first:], first):
            if digest is not None:
                total = digest if total is None else tuple(map(operator.add, total, digest))
            if at >= index and total is not None:
                yield total


def trains_nothing(passes: Sequence[BackwardPass]) -> bool:
    """Whether there are optimizers, and each step of theirs is known to have had nothing but zeros."""
    digests = [g.digest for steps in _optimizers(passes).values() for step in steps for g in step]
    return bool(digests) and not any(digest == () or any(digest or ()) for digest in digests)  # (): nobody has looked


def untrained(reference: Sequence[BackwardPass], tried: Sequence[BackwardPass]) -> tuple[str, ...]:
    """The leaves that optimizers step without a gradient where the reference has one; without a step, any such leaf.

    A value that was made once, and is cut off after the first iteration, still has its gradient in the first step: that
    one counts only if it is alone.
    """
    ours, theirs = _optimizers(reference), _optimizers(tried)
    if not ours:
        gone = leaves_reached(reference) - leaves_reached(tried)
        renamed = _stood_in_for(reference, tried, gone) if len(reference) == len(tried) else set()
        return tuple(sorted(gone - renamed))
    return tuple(
        leaf
        for optimizer in sorted(ours.keys() & theirs.keys())
        for leaf in sorted(_leaves_fed(ours[optimizer]) - _leaves_fed(theirs[optimizer]))
    )


def _stood_in_for(reference: Sequence[BackwardPass], tried: Sequence[BackwardPass], gone: set[str]) -> set[str]:
    """Those of the leaves for which every pass has a new one of their shape: tensors made anew in each iteration."""
    found = set(gone)
    known = leaves_reached(reference)
    for one, other in zip(reference, tried):
        new = [g.shape for g in other.gradients if g.digest is not None and any(g.digest) and g.leaf not in known]
        for g in one.gradients:
            if g.leaf in gone and g.digest is not None and any(g.digest):
                if g.shape in new:
                    new.remove(g.shape)
                else:
                    found.discard(g.leaf)
    return found


def _leaves_fed(steps: Sequence[tuple[LeafGradient, ...]]) -> set[str]:
    found = [(g.leaf, g.digest) for step in steps[1:] or steps for g in step if g.digest is not None]
    return {leaf for leaf, digest in found if digest == () or any(digest)}  # (): nobody has looked


def _fed(steps: Sequence[tuple[LeafGradient, ...]]) -> bool:
    return bool(_trained(steps))


def _trained(steps: Iterable[tuple[LeafGradient, ...]]) -> set[str]:
    """The leaves for which some steps had a gradient."""
    return {g.leaf for step in steps for g in step if g.digest is not None and any(g.digest)}


def _unlooked(steps: Sequence[tuple[LeafGradient, ...]]) -> bool:
    """Whether there are steps of whose gradients nothing is known."""
    return any(g.digest == () for step in steps for g in step)


def _optimizers(passes: Sequence[BackwardPass]) -> dict[tuple[str, ...], list[tuple[LeafGradient, ...]]]:
    """The steps of each optimizer, which is known by its parameters."""
    steps: dict[tuple[str, ...], list[tuple[LeafGradient, ...]]] = {}
    for one in passes:
        for step in one.steps:
            steps.setdefault(tuple(g.leaf for g in step), []).append(step)
    return steps


def _compare_passes(reference: Sequence[BackwardPass], tried: Sequence[BackwardPass], cut_off: bool) -> Gradients:
    if not reference or not tried:
        return "unknown"
    if len(reference) != len(tried):
        return _compare_totals(reference, tried)
    smaller = False
    for i, (ours, theirs) in enumerate(zip(reference, tried)):
        if ours.failed or theirs.failed:
            return "unknown"
        smaller = smaller or theirs.nodes < ours.nodes
        if not (ours.looked and theirs.looked) or _same_pass(ours, theirs):
            continue
        if _permuted(reference, tried) or (cut_off and i + 1 < len(tried) and _permuted_so_far(reference, tried)):
            return "same"
        return "truncated" if smaller or _reached(theirs) < _reached(ours) else "different"
    return "same"


def forward_changed(reference: Sequence[BackwardPass], tried: Sequence[BackwardPass]) -> bool:
    """Whether, up to the first pass whose gradients differ, one goes back from another value than the reference's.

    A rewrite of a line should not do that: where it does, something else was meant to see the write.
    """
    if len(reference) != len(tried):
        return False
    for ours, theirs in zip(reference, tried):
        if not (ours.looked and theirs.looked):
            continue
        if ours.value is not None and theirs.value is not None and not close(ours.value, theirs.value):
            return True
        if not _same_pass(ours, theirs):
            return False
    return False


def reach_alike(reference: Sequence[BackwardPass], tried: Sequence[BackwardPass]) -> bool:
    """Whether as many backwards reach the same leaves each, in whatever order."""
    first, second = (Counter(frozenset(leaves_reached([one])) for one in passes) for passes in (reference, tried))
    return bool(first) and first == second


def leaves_reached(passes: Sequence[BackwardPass]) -> set[str]:
    """Names of the leaves that got a gradient other than zero; what is rounding beside a pass's largest one is zero."""
    found = set()
    for one in passes:
        sizes = {g.leaf: max(map(abs, g.digest), default=0.0) for g in one.gradients if g.digest is not None}
        least = _ROUNDING * max(filter(math.isfinite, sizes.values()), default=0.0)
        found |= {leaf for leaf, size in sizes.items() if not size <= least}
    return found


def _reached(one: BackwardPass) -> set[str]:
    return {g.leaf for g in one.gradients if g.digest is not None}


def _same_pass(a: BackwardPass, b: BackwardPass) -> bool:
    left, right = ({g.leaf: g for g in one.gradients} for one in (a, b))
    rest = [g for k, g in right.items() if k not in left]
    for name, gradient in left.items():
        if name in right:
            other: LeafGradient | None = right[name]
        else:  # a name may have gone to another tensor (`x = x.clone()`), or come to one
            other = next((g for g in rest if g.shape == gradient.shape and close(gradient.digest, g.digest)), None)
            rest = [g for g in rest if g is not other]
        if not close(gradient.digest, other.digest if other is not None else None):
            return False
    return all(close(None, g.digest) for g in rest)


def _permuted(reference: Sequence[BackwardPass], tried: Sequence[BackwardPass]) -> bool:
    """Whether the same passes took place in another order, as when two updates change places."""
    rest = list(tried)
    for one in reference:
        match = next((other for other in rest if _same_pass(one, other)), None)
        if match is None:
            return False
        rest.remove(match)
    return True


def _permuted_so_far(reference: Sequence[BackwardPass], tried: Sequence[BackwardPass]) -> bool:
    """The same where runs were ended in the middle of an iteration: what is last in one is still to come in the other."""
    one, other = reference[-1], tried[-1]
    alike = one.nodes == other.nodes and one.leaves == other.leaves
    return not alike and _permuted(reference[:-1], tried[:-1])


def _compare_totals(reference: Sequence[BackwardPass], tried: Sequence[BackwardPass]) -> Gradients:
    """For runs with another number of passes (two losses summed into one): the sum over passes of every leaf.

    Where not all passes were looked at, over those at the beginning that correspond.
    """
    if not all(one.looked for one in (*reference, *tried)):
        ratio = len(reference) / len(tried)
        shared = min(_looked(tried), int(_looked(reference) / ratio))
        reference, tried = reference[: round(shared * ratio)], tried[:shared]
    ours, theirs = _totals(reference), _totals(tried)
    if any(p.failed for p in (*reference, *tried)):
        return "unknown"
    if all(close(ours.get(k), theirs.get(k)) for k in ours | theirs):
        return "same"
    return "truncated" if set(theirs) < set(ours) else "different"


def _looked(passes: Sequence[BackwardPass]) -> int:
    return next((i for i, one in enumerate(passes) if not one.looked), len(passes))


def _totals(passes: Sequence[BackwardPass]) -> dict[str, tuple[float, ...]]:
    totals: dict[str, tuple[float, ...]] = {}
    for one in passes:
        for g in one.gradients:
            if g.digest is not None:
                old = totals.get(g.leaf)
                same = old is not None and len(old) == len(g.digest)
                totals[g.leaf] = tuple(a + b for a, b in zip(old, g.digest)) if same else g.digest  # type: ignore[arg-type]
    return totals
