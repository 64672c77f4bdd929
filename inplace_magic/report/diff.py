"""A fix's diff, taken apart into the pieces that a report draws."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Literal

from ..diagnosis import Fix
from .escape import lines, one_line, visible

Sign = Literal["-", "+", " "]

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@")
_CONTEXT = 1
_MOST_INDENTED = 5  # lines of a block that only go in, with both their signs; of more, two at either end are shown


@dataclass(frozen=True)
class Line:
    """One line of a diff. ``differs`` is the column up to which it is the same as the line it replaces."""

    sign: Sign
    text: str
    differs: int = 0


@dataclass(frozen=True)
class Section:
    """Neighbouring changes of one cell or file, under the place where they begin."""

    label: str
    lines: tuple[Line, ...]


def sections(fix: Fix) -> list[Section]:
    """The changes of ``fix`` in the order of its diff, each with at most one line of context on either side."""
    return [_section(label, start, found) for label, start, found in _hunks(fix) if any(s != " " for s, _ in found)]


def dedented(found: tuple[Line, ...]) -> tuple[Line, ...]:
    """The same lines without the indentation that they all have."""
    depth = min((len(line.text) - len(line.text.lstrip(" ")) for line in found if line.text.strip()), default=0)
    return tuple(replace(line, text=line.text[depth:], differs=max(line.differs - depth, 0)) for line in found)


def _hunks(fix: Fix) -> Iterator[tuple[str, int, list[tuple[Sign, str]]]]:
    label, start = _only_target(fix), 0
    found: list[tuple[Sign, str]] = []
    text = lines(fix.diff)
    for i, line in enumerate(text):
        after = text[i + 1] if i + 1 < len(text) else ""
        before = text[i - 1] if i else ""
        # A removed "-- x" also begins with "--- ": only the pair of header lines tells.
        if line.startswith("--- ") and after.startswith("+++ "):
            yield label, start, found
            label, start, found = _name(line[4:]), 0, []
        elif line.startswith("+++ ") and before.startswith("--- "):
            continue
        elif hunk := _HUNK.match(line):
            yield label, start, found
            start, found = int(hunk[1]), []
        elif line.startswith(("-", "+", " ")) or not line:
            sign: Sign = "-" if line[:1] == "-" else "+" if line[:1] == "+" else " "
            found.append((sign, visible(line[1:])))
        elif not line.startswith("\\"):
            yield label, start, found
            label, start, found = _name(line), 0, []
    yield label, start, found


def _only_target(fix: Fix) -> str:
    targets = [f"In[{n}]" for n in fix.cells] + [one_line(name) for name in fix.files]
    return targets[0] if len(targets) == 1 else ""


def _name(header: str) -> str:
    return one_line(header.partition("\t")[0])


def _section(label: str, start: int, found: list[tuple[Sign, str]]) -> Section:
    changed = [i for i, (sign, _) in enumerate(found) if sign != " "]
    first, last = max(changed[0] - _CONTEXT, 0), changed[-1] + _CONTEXT
    at = start + sum(sign != "+" for sign, _ in found[: changed[0]])
    kept = _trim_blank(found[first : last + 1])
    return Section(f"{label}:{at}" if label and start else label, tuple(_indented(kept) or _pair(kept)))


def _trim_blank(found: list[tuple[Sign, str]]) -> list[tuple[Sign, str]]:
    if found[0][0] == " " and not found[0][1].strip():
        found = found[1:]
    if found[-1][0] == " " and not found[-1][1].strip():
        found = found[:-1]
    return found


def _pair(found: list[tuple[Sign, str]]) -> Iterator[Line]:
    """Tell each line where it departs from its partner, so that a line too long to show is shown from there."""
    i = 0
    while i < len(found):
        removed = _run_of("-", found[i:])
        added = _run_of("+", found[i + len(removed) :])
        if not removed and not added:
            yield Line(" ", found[i][1])
            i += 1
            continue
        same = [_same_start(old, new) for old, new in zip_longest(removed, added, fillvalue="")]
        yield from (Line("-", text, at) for text, at in zip(removed, same))
        yield from (Line("+", text, at) for text, at in zip(added, same))
        i += len(removed) + len(added)


def _indented(found: list[tuple[Sign, str]]) -> list[Line]:
    """The lines of a long block that only go in, with those that come on top; empty where anything else differs."""
    if sum(sign == "-" for sign, _ in found) <= _MOST_INDENTED:
        return []
    removed, added = ([text for sign, text in found if sign != other] for other in ("+", "-"))
    before, after = ([text.strip() for text in texts] for texts in (removed, added))
    codes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    if any(kind not in ("equal", "insert") for kind, *_ in codes):
        return []
    lines: list[Line] = []
    for kind, _, _, first, last in codes:
        texts = added[first:last]
        if kind == "equal" and len(texts) > _MOST_INDENTED:
            depth = len(texts[-2]) - len(texts[-2].lstrip())
            texts = [*texts[:2], " " * depth + "…", *texts[-2:]]
        lines += [Line("+" if kind == "insert" else " ", text) for text in texts]
    return lines


def _run_of(sign: Sign, found: list[tuple[Sign, str]]) -> list[str]:
    texts: list[str] = []
    for its, text in found:
        if its != sign:
            break
        texts.append(text)
    return texts


def _same_start(old: str, new: str) -> int:
    return next((i for i, (a, b) in enumerate(zip(old, new)) if a != b), min(len(old), len(new)))
