"""What a report says, in words: the same for every medium, so that no medium carries its meaning by looks alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ..diagnosis import Conflict, Diagnosis, Fix, LiveChange, Place
from .clean import one_line

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
    found: list[Row] = []
    for role, place, note in _in_order(conflict, family):
        if place is None:
            continue
        here = _HERE_IN_FAMILY.get(family, {}).get(role, _HERE[role])
        note = one_line(note)
        found.append(Row(role, one_line(place.label), one_line(place.text), here, "" if note == here else note))
    return found


def _in_order(conflict: Conflict, family: str) -> list[tuple[Role, Place | None, str]]:
    saved: tuple[Role, Place | None, str] = ("saved", conflict.saved, conflict.saved_note)
    changed: tuple[Role, Place | None, str] = ("changed", conflict.changed, conflict.changed_note)
    needed: tuple[Role, Place | None, str] = ("needed", conflict.needed, conflict.needed_note)
    if family in _REFUSED and _same_line(conflict.needed, conflict.changed):
        return [saved, changed]
    return [changed, saved, needed] if family == "inference" else [saved, changed, needed]


def _same_line(one: Place | None, other: Place | None) -> bool:
    return one is not None and other is not None and one.label == other.label


def took(diagnosis: Diagnosis) -> str:
    """How long it took, and in what state it leaves the session."""
    kept = "your session is as the cell left it" if diagnosis.family == "silent" else "your session is as it was"
    if diagnosis.seconds <= 0:
        return kept
    seconds = max(diagnosis.seconds, 0.1)
    return f"{seconds:.{1 if seconds < 9.95 else 0}f} s, {kept}"


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
    effect, measured = GRADIENTS[fix.gradients], re.sub(r"^proved:\s*", "", one_line(fix.proof).rstrip("."))
    if fix.verified:
        # What it does to the gradient is measured too; only with the right one is the fix as a whole proved.
        claim = "proved" if fix.gradients == "same" else "proved to run"
        if not measured:
            return f"proved: ran, {effect}" if fix.gradients == "same" else f"{claim}, {effect}"
        return _with(f"{claim}: {measured}", effect)
    # The words for a fix that was tried would be a lie here, whoever wrote the sentence.
    if not measured or re.search(r"prove|proof|verif", measured, re.IGNORECASE):
        measured = "only a suggestion: it has not been run"
    return _with(measured, effect)


def _with(said: str, effect: str) -> str:
    return said if effect.casefold() in said.casefold() else f"{said}; {effect}"


def no_fix(diagnosis: Diagnosis) -> str:
    """The sentence that stands where the fix would."""
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
