"""Writes a finding's first fix into the files it changes."""

from __future__ import annotations

from collections.abc import Callable

from ..diagnosis import Diagnosis, shown_path
from ..message import message
from ..source.atomic_write import NotWrittenError, backup_of, check, write_source
from .output import Output


def write_fix(found: Diagnosis, output: Output, more: Callable[[], str] | None = None) -> None:
    """Writes the files of the first fix, and says so; ``more`` writes what else belongs to it and tells its path.

    Nothing at all is written if one of them may not be.
    """
    if not found.fixes:
        output.say(message("cli_no_fix_to_write"))
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
        output.say(message("cli_nothing_written", reason=reason.args[0]))
        return
    for path in written:
        output.say(message("cli_fixed", file=shown_path(path), backup=shown_path(backup_of(path))))
