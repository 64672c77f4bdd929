"""Writes a finding's first fix into the files it changes."""

from __future__ import annotations

from collections.abc import Callable

from ..diagnosis import Diagnosis, shown_path
from ..source.atomic_write import NotWrittenError, backup_of, check, write_source
from .output import say


def write_fix(found: Diagnosis, more: Callable[[], str] | None = None) -> None:
    """Writes the files of the first fix, and says so; ``more`` writes what else belongs to it and tells its path.

    Nothing at all is written if one of them may not be.
    """
    if not found.fixes:
        say("nothing was written: no fix could be proved")
        return
    files = found.fixes[0].files
    undo: list[Callable[[], None]] = []
    written = []
    try:
        for path in files:
            check(path, found.files[path])
        for path, text in files.items():
            undo.append(write_source(path, found.files[path], text))
            written.append(path)
        if more is not None:
            written.append(more())
    except NotWrittenError as reason:
        for step in reversed(undo):
            step()
        say(f"nothing was written: {reason}")
        return
    for path in written:
        say(f"fixed {shown_path(path)} (its text before the first fix is in {shown_path(backup_of(path))})")
