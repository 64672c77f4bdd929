"""What a report consists of, in one language: the same for every medium, which only draws it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..diagnosis import Conflict, Diagnosis, Fix, LiveChange, place_of_items, shown_path
from ..message import Language, kind_of, message, said
from . import diff
from .escape import one_line
from .excerpt import Block, blocks

_MOST_FURTHER = 5
_ALWAYS_SHOWN = 24  # characters of a title's line, where there is little room
_NOTES_ON_FIXES = frozenset({"rewrites_failed", "rewrites_refused", "not_rerun_watched"})
# What some proofs say of the gradients.
_EFFECTS = {"verified_values": message("values"), "verified_alike": message("alike")}
# Sentences that say no more than the labels at the places.
_TOLD_BY_LABELS = frozenset({
    "overwrote", "overwrote_of", "overwrote_kept", "overwrote_kept_of", "handed_gradient", "past_autograd", "reshaped",
    "freed_before", "freed_shared", "refused_leaf", "refused_view_of_leaf", "refused_multi_output_view",
    "refused_no_grad_view", "refused_overlap", "refused_out_grad", "refused_inference", "refused_overlaps_input",
})  # fmt: skip


@dataclass(frozen=True)
class FixShown:
    """One fix. ``name`` is ``Fix 1``; ``title`` tells it from the others by its place and its edit.

    ``sure``: nothing is known against it. ``clauses`` say what else it does and what it changes; ``files`` are the
    paths that it changes, as a person writes them.
    """

    name: str
    title: str
    status: str
    sure: bool
    why: str
    sections: tuple[diff.Section, ...]
    clauses: tuple[str, ...]
    files: dict[str, str]
    patch: str


@dataclass(frozen=True)
class Report:
    """A diagnosis in a language, piece by piece, in the order in which it is read."""

    language: Language
    headline: str
    status: str
    blocks: tuple[Block, ...]
    sentences: tuple[str, ...]
    fixes: tuple[FixShown, ...]
    no_fix: str
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """What the panel draws; the fixes' diffs it makes itself, of the very texts that it applies."""
        return {
            "language": self.language,
            "headline": self.headline,
            "status": self.status,
            "blocks": [block.to_dict() for block in self.blocks],
            "sentences": list(self.sentences),
            "fixes": [
                {
                    "name": fix.name,
                    "title": fix.title,
                    "status": fix.status,
                    "sure": fix.sure,
                    "why": fix.why,
                    "clauses": list(fix.clauses),
                    "files": fix.files,
                }
                for fix in self.fixes
            ],
            "noFix": self.no_fix,
            "notes": list(self.notes),
        }

    def say(self, kind: str, **arguments: Any) -> str:
        """One of the catalogue's sentences, in the report's language."""
        return said(message(kind, **arguments), self.language)


def report_of(diagnosis: Diagnosis, language: Language = "en") -> Report:
    """What there is to be read of a diagnosis."""

    def text(one: str) -> str:
        return one_line(said(one, language))

    first = diagnosis.conflicts[0] if diagnosis.conflicts else None
    marked = blocks(first, diagnosis.family, language) if first is not None else ()
    return Report(
        language=language,
        headline=text(diagnosis.headline),
        status=text(status_of(diagnosis)),
        blocks=marked,
        sentences=tuple(text(one) for one in _sentences(diagnosis) if one),
        fixes=tuple(_fix(fix, number, diagnosis, language) for number, fix in enumerate(diagnosis.fixes, 1)),
        no_fix="" if diagnosis.fixes else text(no_fix(diagnosis)),
        notes=tuple(text(note) for note in diagnosis.notes),
    )


def status_of(diagnosis: Diagnosis) -> str:
    """How long it took, and in what state it leaves the session."""
    kept = message("session_as_left" if diagnosis.family == "silent" else "session_unchanged")
    if diagnosis.seconds <= 0:
        return kept
    seconds = max(diagnosis.seconds, 0.1)
    took = message("seconds", seconds=f"{seconds:.{1 if seconds < 9.95 else 0}f}")
    # Without a cell there is no session.
    return took if diagnosis.cell is None else message("both", one=took, other=kept)


def no_fix(diagnosis: Diagnosis) -> str:
    """The sentence that stands where the fix would, unless a note says it already and says why."""
    if any(kind_of(note) in _NOTES_ON_FIXES for note in diagnosis.notes):
        return ""
    return message("no_fix" if diagnosis.conflicts else "no_fix_nothing_known")


def verdict(fix: Fix) -> str:
    """How a fix was tried, and what it does to the gradients."""
    cut = fix.gradients == "truncated" and fix.untrained
    effect = message("truncated_into", names=fix.untrained) if cut else message(fix.gradients)
    effect = _EFFECTS.get(kind_of(fix.proof) or "", effect)
    if fix.gradients == "different" and fix.changes:
        effect = message("result")  # the gradients may well be the same
    if not fix.verified:
        return message("until_error")
    return message("both_with_comma", one=message("verified"), other=effect)


def further(conflicts: tuple[Conflict, ...]) -> str:
    """The conflicts after the first in one line, or nothing."""
    rest = conflicts[1:]
    if not rest:
        return ""
    shown_already = _labels(conflicts[0])
    rest = tuple(c for c in rest if _says_more(c, shown_already))
    if not rest:
        return ""
    places = (c.changed or c.saved or c.needed for c in rest)
    labels = list(dict.fromkeys(one_line(place.label) for place in places if place is not None))
    if not labels:
        return message("more_changes_unplaced", count=len(rest))
    shown = ", ".join(labels[:_MOST_FURTHER]) + (", …" if len(labels) > _MOST_FURTHER else "")
    return message("more_changes", count=len(rest), places=shown)


def _says_more(conflict: Conflict, shown: set[str]) -> bool:
    """Whether a further conflict has a place that is not shown; that of a freed graph is the line it is read at, or freed."""
    if conflict.operation == "backward" and conflict.changed is not None:
        return conflict.changed.label not in shown
    return not _labels(conflict) or bool(_labels(conflict) - shown)


def _labels(conflict: Conflict) -> set[str]:
    return {place.label for place in (conflict.saved, conflict.changed, conflict.needed) if place is not None}


def runs_again(fix: Fix) -> str:
    """Which cells have to run again, where it is more than the failing one."""
    return message("runs_again", cells=", ".join(f"In[{n}]" for n in fix.run)) if len(fix.run) > 1 else ""


def live(changes: Sequence[LiveChange]) -> list[str]:
    """Live changes as sentences: one for all items of a container that are changed alike."""
    alike: dict[str, list[LiveChange]] = {}
    for change in changes:
        alike.setdefault(place_of_items(change.text), []).append(change)
    return [
        message("live_too", code=one_line(some[0].text).replace("`", "'"))
        if len(some) == 1
        else message("live_items", code=one_line(place).replace("`", "'"), count=len(some))
        for place, some in alike.items()
    ]


def title(fix: Fix, other: Fix | None = None) -> str:
    """The place and the line by which a fix is told from another one, or what it is called where that tells more."""
    sections = diff.sections(fix)
    known = _added(other) if other is not None else set()
    for section in sections:
        removed = {line.text.strip() for line in section.lines if line.sign == "-"}
        for line in section.lines:
            edit = line.text.strip()
            if line.sign == "+" and edit and edit not in removed | known and "`" not in edit:
                return _placed(section.label, f"`{_from_the_change(line)}`", len(sections) - 1)
    return _placed(sections[0].label, fix.title, len(sections) - 1) if sections else fix.title


def _from_the_change(line: diff.Line) -> str:
    """A long line from a little before what it changes, so that the fixes of one line are told apart."""
    edit = line.text.strip()
    same = line.differs - line.text.index(edit)
    if same < _ALWAYS_SHOWN:
        return edit
    words = (found.start() for found in re.finditer(r"\b\w", edit) if same - 12 <= found.start() <= same)
    return "…" + edit[next(words, same) :]


def _placed(label: str, edit: str, more: int) -> str:
    made = message("placed", place=label, edit=edit) if label else edit
    return message("and_more_changes", title=made, count=more) if more else made


def _added(fix: Fix) -> set[str]:
    return {line.text.strip() for section in diff.sections(fix) for line in section.lines if line.sign == "+"}


def _sentences(diagnosis: Diagnosis) -> tuple[str, ...]:
    """What the labels at the marks do not say."""
    if not diagnosis.conflicts:
        return ()
    first = diagnosis.conflicts[0]
    told = first.changed is not None and kind_of(first.sentence) in _TOLD_BY_LABELS
    return ("" if told else first.sentence, first.carries, further(diagnosis.conflicts))


def _fix(fix: Fix, number: int, diagnosis: Diagnosis, language: Language) -> FixShown:
    def text(one: str) -> str:
        return one_line(said(one, language))

    several = len(diagnosis.fixes) > 1
    other = [said(change, language) for change in fix.changes]
    if fix.untrained and fix.gradients != "truncated":
        other.append(said(message("untrained", names=fix.untrained), language))
    clauses: list[str] = [message("also_changes", changes="; ".join(other))] if other else []
    clauses += live(fix.live)
    if again := runs_again(fix):
        clauses.append(again)
    if fix.once:
        clauses.append(message("runs_once", cell=f"In[{fix.run[-1]}]", error=one_line(fix.once)))
    return FixShown(
        name=text(message("fix_number", number=number) if several else message("fix")),
        title=text(title(fix, diagnosis.fixes[0] if number > 1 else None)),
        status=text(verdict(fix)),
        sure=fix.verified and fix.gradients == "same" and not other,
        why=text(fix.why),
        sections=tuple(replace(one, lines=diff.dedented(one.lines)) for one in diff.sections(fix)),
        clauses=tuple(text(clause) for clause in clauses),
        files={path: shown_path(path) for path in fix.files},
        patch=fix.diff,
    )
