"""Puts a new text into a file of the user's: whole or not at all, with the old one kept beside it.

Nothing is written outside the working directory, into a library, or over something that was not diagnosed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable

from ..diagnosis import shown_path
from ..message import message
from .files import read_source
from .location import kind_of

_BACKUPS: dict[str, str] = {}  # of the files that were written by this very process: where their first text is


class NotWrittenError(Exception):
    """Why a file was left alone, in one line."""


def outside(path: str) -> str | None:
    """None for a file that may be written, else the clause that says why it may not."""
    real, here = os.path.realpath(path), os.path.realpath(os.getcwd())
    if kind_of(real) != "user":
        return message("is_library")
    if os.path.commonpath([real, here]) != here:
        return message("is_outside")
    return None


def check(path: str, old: str) -> None:
    """Raises NotWrittenError unless the file may be written and still reads as it did."""
    reason = outside(path)
    if reason is not None:
        raise NotWrittenError(message("not_written", file=shown_path(path), reason=reason))
    try:
        now = read_source(path).text
    except (OSError, SyntaxError, UnicodeError) as problem:
        raise NotWrittenError(message("not_readable", file=shown_path(path), problem=str(problem))) from None
    if now != old:
        raise NotWrittenError(message("changed_since_diagnosed", file=shown_path(path)))


def write_source(path: str, old: str, new: str) -> Callable[[], None]:
    """Replaces a source file's text. Encoding, line ends and permissions are kept. Returns what takes it back.

    Raises NotWrittenError, with everything as it was, where the file cannot or may not be written.
    """
    check(path, old)
    path = os.path.realpath(path)
    return write_bytes(path, read_source(path).encoded(new))


def write_bytes(path: str, data: bytes) -> Callable[[], None]:
    """Replaces a file's content at once. Returns what takes it back.

    Its content from before the first time is kept in NAME.orig; where there is such a file already, and it is none of
    ours, in NAME.orig.1 and so on: ``backup_of`` tells where. Taking it back does nothing but raise NotWrittenError where the file has changed since.
    """
    with open(path, "rb") as file:
        before = file.read()
    backup = backup_of(path)
    made = not os.path.lexists(backup)
    try:
        if made:
            _replace(backup, before, like=path)
        _replace(path, data, like=path)
        _BACKUPS[path] = backup
    except OSError as problem:
        if made:
            with contextlib.suppress(OSError):
                os.unlink(backup)
        raise NotWrittenError(message("not_writable", file=shown_path(path), problem=problem.strerror)) from None

    def take_back() -> None:
        with open(path, "rb") as file:
            if file.read() != data:
                raise NotWrittenError(message("changed_since", file=shown_path(path), backup=shown_path(backup)))
        _replace(path, before, like=path)
        if made:
            with contextlib.suppress(OSError):
                os.unlink(backup)
            _BACKUPS.pop(path, None)

    return take_back


def backup_of(path: str) -> str:
    """Where the content of a file is kept, or would be: beside it, and never over a file of somebody else's."""
    path = os.path.realpath(path)
    made = _BACKUPS.get(path)
    if made is not None and os.path.lexists(made):
        return made
    names = (f"{path}.orig", *(f"{path}.orig.{number}" for number in range(1, 1000)))
    return next((name for name in names if not os.path.lexists(name)), names[-1])


def _replace(path: str, data: bytes, like: str) -> None:
    """Writes beside, then puts in place: a reader sees the old file or the new one, never a part."""
    handle, beside = tempfile.mkstemp(dir=os.path.dirname(path), prefix=f".{os.path.basename(path)}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        shutil.copymode(like, beside)
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
