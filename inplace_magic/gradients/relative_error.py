"""How far off gradients are: a plain run against the one in which every backward read the values as they were saved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..message import message
from ..record.evidence import BackwardPass

_SHOWN = 3
_NOTABLE = 1e-4
_NOISE = 1e-5


def deviations(plain: Sequence[BackwardPass], reference: Sequence[BackwardPass]) -> dict[str, float] | None:
    """For each leaf the relative error of its gradient, the worst first; None if not comparable.

    Counted up to the first pass in which one is notably off: what comes later also follows from steps that used it, and
    would name leaves whose own gradient is right. A gradient that should have been zero is off by infinity. Leaves whose
    gradient is right are left out.
    """
    if not plain or len(plain) != len(reference) or any(one.failed for one in (*plain, *reference)):
        return None
    worst: dict[str, float] = {}
    for ours, theirs in zip(plain, reference):
        for leaf, error in _errors(ours, theirs).items():
            if error is None:
                return None
            worst[leaf] = max(worst.get(leaf, 0.0), error)
        if any(error >= _NOTABLE for error in worst.values()):
            break
    found = {leaf: error for leaf, error in worst.items() if error > _NOISE}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def still_off(tried: Sequence[BackwardPass], plain: Sequence[BackwardPass], reference: Sequence[BackwardPass]) -> bool:
    """Whether the gradients that are notably off in a plain run are, in the first pass with such ones, the same in another run."""
    for ours, theirs, right in zip(tried, plain, reference):
        off = {leaf for leaf, error in _errors(theirs, right).items() if error is not None and error >= _NOTABLE}
        if off:
            errors = _errors(ours, theirs)
            return all((error := errors.get(leaf)) is not None and error < _NOTABLE for leaf in off)
    return False


def _errors(ours: BackwardPass, theirs: BackwardPass) -> dict[str, float | None]:
    """For each leaf of two passes the relative error of its gradient, None where two of them do not compare; none if the
    gradients of one pass were not looked at.
    """
    if not (ours.looked and theirs.looked):
        return {}
    mine, right = _by_leaf(ours), _by_leaf(theirs)
    return {leaf: _relative(mine.get(leaf), right.get(leaf)) for leaf in mine | right}


def _by_leaf(one: BackwardPass) -> dict[str, tuple[float, ...]]:
    return {g.leaf: g.digest for g in one.gradients if g.digest is not None}


def _relative(mine: Sequence[float] | None, right: Sequence[float] | None) -> float | None:
    if right is None:
        return 0.0 if mine is None or not any(mine) else math.inf
    mine = mine if mine is not None else [0.0] * len(right)
    if len(mine) != len(right):
        return None
    if not all(map(math.isfinite, right)):
        return None
    if not all(map(math.isfinite, mine)):
        return math.inf
    size = math.hypot(*right)
    error = math.hypot(*(a - b for a, b in zip(mine, right)))
    return error / size if size else (math.inf if error else 0.0)


def in_words(off: Mapping[str, float]) -> str:
    """``uses the changed value: x.grad is off by 50%, w.grad is off by 3%``; the worst first."""
    parts: list[str] = [
        message("gradient_off", leaf=leaf, amount=_amount(error)) for leaf, error in off.items() if error >= _NOTABLE
    ]
    if not parts:
        return message("uses_changed")
    more = [message("and_more", count=len(parts) - _SHOWN)] if len(parts) > _SHOWN else []
    return message("gradients_off", leaves=(*parts[:_SHOWN], *more))


def _amount(error: float) -> str:
    if math.isinf(error):
        return message("amount_infinite")
    percent = 100 * error
    if percent >= 1000:
        return message("amount_factor", factor=f"{error + 1:.0f}")
    return message("amount_percent", percent=f"{percent:.2g}" if percent < 10 else f"{percent:.0f}")
