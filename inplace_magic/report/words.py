"""What a report says, in words: the same for every medium, so that no medium carries its meaning by looks alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ..diagnosis import LOST, Conflict, Diagnosis, Fix, LiveChange, Place
from .escape import one_line

Role = Literal["saved", "changed", "needed"]

GRADIENTS: Mapping[str, str] = {
    "same": "gradients are those your code means",
    "truncated": "cuts the graph: earlier steps get no gradient from here",
    "different": "gradients differ from those of the code as written",
    "unknown": "gradients were not compared",
}

#: The families whose error is raised by the write itself.
_REFUSED = frozenset({"leaf", "view_of_leaf", "multi_output_view", "no_grad_view", "overlap", "out_grad"})
_HERE: Mapping[Role, str] = {"saved": "saved here", "changed": "changed here", "needed": "needed here"}
_HERE_IN_FAMILY: Mapping[str, Mapping[Role, str]] = {
    "second_backward": {"saved": "made here", "changed": "freed here", "needed": "needed again here"},
    "inference": {"changed": "made in inference mode here"},
    **{family: {"changed": "refused here"} for family in _REFUSED},
}
_MOST_FURTHER = 5


@dataclass(frozen=True)
class Row:
    """One place of a conflict as it is shown. The ``changed`` row is the one to look at first."""

    role: Role
    label: str
    code: str
    here: str
    note: str


def rows(conflict: Conflict, family: str) -> list[Row]:
    """The known places in the order in which they happened."""
    places: dict[Role, tuple[Place | None, str]] = {
        "saved": (conflict.saved, conflict.saved_note),
        "changed": (conflict.changed, conflict.changed_note),
        "needed": (conflict.needed, conflict.needed_note),
    }
    found = []
    for role in _order(conflict, family):
        place, note = places[role]
        if place is not None:
            here = _here(conflict, family).get(role, _HERE[role])
            found.append(Row(role, one_line(place.label), one_line(place.text), here, _beyond(here, one_line(note))))
    return found


def _here(conflict: Conflict, family: str) -> Mapping[Role, str]:
    if family in ("multi_output_view", "no_grad_view") and not _same_line(conflict.changed, conflict.needed):
        return {"needed": "refused here"}  # for what an earlier line has changed
    return _HERE_IN_FAMILY.get(family, {})


def _order(conflict: Conflict, family: str) -> tuple[Role, ...]:
    if family == "inference":
        return ("changed", "needed") if _same_line(conflict.saved, conflict.needed) else ("changed", "saved", "needed")
    if family in _REFUSED and _same_line(conflict.changed, conflict.needed):
        return ("saved", "changed")
    return ("saved", "changed", "needed")


def _beyond(here: str, note: str) -> str:
    """What ``note`` says that ``here`` does not."""
    return "" if here.startswith(note) else note.removeprefix(here).lstrip(" ,:;")


def _same_line(one: Place | None, other: Place | None) -> bool:
    return one is not None and other is not None and one.label == other.label


def took(diagnosis: Diagnosis) -> str:
    """How long it took, and in what state it leaves the session."""
    kept = "your session is as the cell left it" if diagnosis.family == "silent" else "your session is as it was"
    if any(LOST in note for note in diagnosis.notes):
        kept = "see the note"
    if diagnosis.seconds <= 0:
        return kept
    seconds = max(diagnosis.seconds, 0.1)
    took = f"{seconds:.{1 if seconds < 9.95 else 0}f} s"
    return took if diagnosis.cell is None else f"{took}, {kept}"  # without a cell there is no session


def further(conflicts: tuple[Conflict, ...]) -> str:
    """The conflicts after the first in one line, or nothing."""
    rest = conflicts[1:]
    if not rest:
        return ""
    places = (c.changed or c.saved or c.needed for c in rest)
    labels = list(dict.fromkeys(one_line(place.label) for place in places if place is not None))
    shown = ", ".join(labels[:_MOST_FURTHER]) + (", …" if len(labels) > _MOST_FURTHER else "")
    return f"and {len(rest)} more of the same kind" + (f": {shown}" if shown else "")


def fix_name(number: int, count: int) -> str:
    """``Fix`` where there is one, ``Fix 1 of 2`` where there are several."""
    return "Fix" if count == 1 else f"Fix {number} of {count}"


def proof(fix: Fix) -> str:
    """What is known of a fix: how it was tried, and what it does to the gradient."""
    effect, measured = GRADIENTS[fix.gradients], one_line(fix.proof).rstrip(".")
    if fix.verified:
        ran = f"proved: ran, {effect}" if fix.gradients == "same" else f"ran past the failure; {effect}"
        return _with(measured, effect) if measured else ran
    # The words for a fix that was tried would be a lie here, whoever wrote the sentence.
    if not measured or re.search(r"prove|proof|verif", measured, re.IGNORECASE):
        measured = "only a suggestion: it has not been run"
    return _with(measured, effect)


def _with(said: str, effect: str) -> str:
    compared = effect != GRADIENTS["unknown"] or "compared" not in said
    return f"{said}; {effect}" if compared and effect.casefold() not in said.casefold() else said


def no_fix(diagnosis: Diagnosis) -> str:
    """The sentence that stands where the fix would, unless a note says it already and says why."""
    if any("proved" in note for note in diagnosis.notes):
        return ""
    return f"{'This is what' if diagnosis.conflicts else 'No more'} is known; no fix was proved."


def live(change: LiveChange) -> str:
    """A live change as a sentence."""
    code = one_line(change.text).replace("`", "'")
    return (
        f"`{code}` is set on the live module too"
        if change.kind == "set"
        else f"`{code}` is done on the live object too"
    )


def runs_again(fix: Fix) -> str:
    """Which cells have to run again, where it is more than the failing one."""
    if len(fix.run) < 2:
        return ""
    return "Then run again, in this order: " + ", ".join(f"In[{n}]" for n in fix.run)
