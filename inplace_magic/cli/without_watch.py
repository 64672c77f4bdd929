"""Diagnoses of a watched cell as if the line that put it under watch were not there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..diagnosis import Conflict, Diagnosis, Fix, Place
from ..source.unified import cell_names, unified


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
        parts.append(unified(sources[number], text, cell_names(number)))
    return "\n".join(parts)
