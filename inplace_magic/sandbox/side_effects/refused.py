"""What a rerun was refused: errors as the operating system raises them, the first of them noted.

A program may handle such an error, and its rerun continues. Where it does not, its rerun ends there.
"""

from __future__ import annotations

import errno
import mmap
import os
import socket

__all__ = ["Attempts", "EndOfRun", "Refused", "ended_by"]

_CANNOT_BE_WRITTEN = (errno.ENOSPC, errno.EROFS, errno.EOVERFLOW, errno.EFBIG)
_NO_MEMORY = "DefaultCPUAllocator: "  # what torch's RuntimeError says of the host's memory


class Refused(OSError):
    """An effect outside of the rerun that was refused. ``what`` is a clause: "writes the file 'a.csv'"."""

    what: str = ""


class RefusedFile(Refused, PermissionError):
    """A file, device or pipe that the rerun may not open or change."""


class RefusedProcess(Refused, FileNotFoundError):
    """As where the program is not installed."""


class RefusedFork(Refused, BlockingIOError):
    """As where there are too many processes."""


class RefusedSignal(Refused, ProcessLookupError):
    """As where the process has ended: what multiprocessing and subprocess are used to."""


class RefusedConnection(Refused, ConnectionRefusedError):
    """As where nobody listens."""


class RefusedName(Refused, socket.gaierror):
    """As where there is no network."""


class RefusedQuestion(Refused, EOFError):
    """As where nobody is there to answer."""


class RefusedWait(Refused):
    """As where a lock would never be given back: there is no other thread that could."""


_ERRORS: dict[type[Refused], tuple[int, str]] = {
    RefusedFile: (errno.EACCES, os.strerror(errno.EACCES)),
    RefusedProcess: (errno.ENOENT, os.strerror(errno.ENOENT)),
    RefusedFork: (errno.EAGAIN, os.strerror(errno.EAGAIN)),
    RefusedSignal: (errno.ESRCH, os.strerror(errno.ESRCH)),
    RefusedConnection: (errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)),
    RefusedName: (socket.EAI_AGAIN, "Temporary failure in name resolution"),
    RefusedWait: (errno.EDEADLK, os.strerror(errno.EDEADLK)),
    RefusedQuestion: (errno.EIO, "EOF when reading a line"),
}


def refused(kind: type[Refused], what: str, name: str | None = None) -> Refused:
    """The error to raise; ``name`` is the file or program it is about."""
    number, text = _ERRORS[kind]
    error = kind(number, text) if name is None else kind(number, text, name)
    error.what = what
    return error


class EndOfRun(BaseException):
    """Raised where the program ends its process (``os._exit``): the run has come to its end."""


def ended_by(error: BaseException | None) -> bool:
    """Whether a run that ended with this error was ended by an effect that could not be played, or for want of memory."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, Refused) or (isinstance(error, OSError) and error.errno in _CANNOT_BE_WRITTEN):
            return True
        if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_MEMORY in str(error)):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


class Attempts:
    """What was refused. ``first`` is kept even when the cell, or a worker process forked by it, handled the error."""

    def __init__(self) -> None:
        # Anonymous shared memory, so that the clause of a forked DataLoader worker arrives here as well.
        self._memory: mmap.mmap | None = mmap.mmap(-1, 1024)
        self._first: str | None = None

    @property
    def first(self) -> str | None:
        if self._memory is None:
            return self._first
        size = int.from_bytes(self._memory[:2], "little")
        return self._memory[2 : 2 + size].decode(errors="replace") if size else None

    def note(self, what: str) -> None:
        if self._memory is None or self.first is not None:
            return
        text = what.encode(errors="replace")[:1000]
        self._memory[2 : 2 + len(text)] = text
        self._memory[:2] = len(text).to_bytes(2, "little")

    def close(self) -> None:
        """Give the shared memory back; ``first`` stays readable."""
        if self._memory is not None:
            self._first = self.first
            self._memory.close()
            self._memory = None
