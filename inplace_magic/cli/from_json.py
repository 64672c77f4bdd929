"""Diagnoses that come out of a kernel as json, back as records."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..diagnosis import Conflict, Diagnosis, Fix, LiveChange, Place


def read_diagnosis(data: Mapping[str, Any]) -> Diagnosis:
    """The diagnosis of which ``Diagnosis.to_dict()`` made this."""
    return Diagnosis(
        family=data["family"],
        headline=data["headline"],
        cell=data["cell"],
        conflicts=tuple(_conflict(c) for c in data["conflicts"]),
        fixes=tuple(_fix(f) for f in data["fixes"]),
        notes=tuple(data["notes"]),
        sources=_by_number(data["sources"]),
        cell_ids=_by_number(data["cell_ids"]),
        files=dict(data["files"]),
        seconds=data["seconds"],
        off={leaf: math.inf if error is None else error for leaf, error in data["off"].items()},
        id=data["id"],
    )


def _by_number(texts: Mapping[str, str]) -> dict[int, str]:
    return {int(number): text for number, text in texts.items()}


def _conflict(data: Mapping[str, Any]) -> Conflict:
    notes = {f"{which}_note": (data[which] or {}).get("note", "") for which in ("changed", "saved", "needed")}
    return Conflict(
        changed=_place(data["changed"]),
        saved=_place(data["saved"]),
        needed=_place(data["needed"]),
        tensor=data["tensor"],
        operation=data["operation"],
        node=data["node"],
        sentence=data["sentence"],
        **notes,
    )


def _place(data: Mapping[str, Any] | None) -> Place | None:
    if data is None:
        return None
    return Place(data["cell"], data["line"], data["text"], data["filename"], data["function"])


def _fix(data: Mapping[str, Any]) -> Fix:
    known = ("title", "why", "rule", "diff", "verified", "gradients", "proof")
    return Fix(
        **{name: data[name] for name in known},
        cells=_by_number(data["cells"]),
        files=dict(data["files"]),
        run=tuple(data["run"]),
        live=tuple(LiveChange("set", text) for text in data["live"]),
    )


def without_first_line(found: Diagnosis, cell: int) -> Diagnosis:
    """The diagnosis as if the first line of a cell, which was put there to watch it, were not there."""

    def place(one: Place | None) -> Place | None:
        return one if one is None or one.cell != cell else replace(one, line=one.line - 1)

    def text(one: Mapping[int, str]) -> dict[int, str]:
        return {n: t.partition("\n")[2] if n == cell else t for n, t in one.items()}

    def conflict(one: Conflict) -> Conflict:
        return replace(one, changed=place(one.changed), saved=place(one.saved), needed=place(one.needed))

    sources = text(found.sources)
    fixes = []
    for fix in found.fixes:
        cells = text(fix.cells)
        fixes.append(replace(fix, cells=cells, diff=_diff(fix, cells, sources)) if cell in cells else fix)
    return replace(found, conflicts=tuple(conflict(c) for c in found.conflicts), fixes=tuple(fixes), sources=sources)


def _diff(fix: Fix, cells: Mapping[int, str], sources: Mapping[int, str]) -> str:
    """The fix's diff made anew for its cells; the part on files, which comes first, stays."""
    at = fix.diff.find("--- In[")
    parts = [fix.diff[:at].rstrip("\n")] if at > 0 else []
    for number, text in sorted(cells.items()):
        names = (f"In[{number}]", f"In[{number}] fixed")
        lines = difflib.unified_diff(sources[number].splitlines(), text.splitlines(), *names, lineterm="", n=2)
        parts.append("\n".join(lines))
    return "\n".join(parts)
