"""A replay's plan: its cells, how far it goes, how the recorder looks at it."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..source.location import SourceRange
from .last_iteration import LastIteration

SHORT_WORK = 30_000  # Recorder.work of a run that is short, so that it goes to the end: half a second or so
EARLY_WORK = 5_000  # of a run that is worth hearing of before it is over
_FURTHER = 4  # passes that a long replay goes past the first conflict at most


@dataclass(frozen=True)
class ReplayPlan:
    """What to run: ``cells`` in order, the failing one last; from an empty namespace if ``fresh``.

    ``cut`` are paths to tensors of the session that are detached first: they hold what the failed run has left behind.
    ``resumed``: of the last cell only the iterations of a loop run that was under way when it failed.
    """

    cells: tuple[int, ...]
    fresh: bool = False
    cut: tuple[str, ...] = ()
    resumed: LastIteration | None = field(default=None, compare=False)


@dataclass(frozen=True)
class StopRule:
    """How far a replay goes: to the end of the cell, or, where the cell is long, a little past the failure.

    ``passes`` is the number of backwards after which it has gone far enough; None if that is not known yet. ``exactly``:
    it ends there, as the run did that it is compared with. ``conflict`` is the pass of the first conflict. ``again``: the
    last cell is run a second time, once it has come to its end. ``whole``: it goes to the end however long that is.
    """

    passes: int | None = None
    exactly: bool = False
    conflict: int | None = None
    again: bool = False
    whole: bool = False


@dataclass(frozen=True)
class RecordOptions:
    """How the recorder looks at a run, see ``Recorder``. ``hidden``: also at writes that torch does not see.

    ``inert``: no gradient has any effect in this run (gradients/inert.py). ``raised``: where the failure was raised.
    """

    update_leaves: bool = False
    keep_graphs: bool = False
    hidden: bool = False
    inert: bool = False
    raised: tuple[SourceRange, ...] = ()

    @classmethod
    def at(cls, family: str, raised: tuple[SourceRange, ...]) -> RecordOptions:
        """The way to look at a failure of this family."""
        return cls(
            update_leaves=family in ("leaf", "view_of_leaf", "multi_output_view"),
            keep_graphs=family == "second_backward",
            hidden=family == "silent",
            raised=raised,
        )


def far_enough(conflict: int, came_before: bool) -> int:
    """How many passes a long replay goes, given the pass of the first conflict.

    Past one more iteration of as many passes as there have been: ``came_before`` tells whether the backward that met
    the conflict had run already, so that the conflict's own pass belongs to the next iteration. Each pass is paid for
    again in every run of a rewrite, and where graphs are kept, each is longer than the one before.
    """
    iteration = conflict if came_before else conflict + 1
    return conflict + 1 + min(_FURTHER, iteration)
