"""One rerun under way: whom it concerns, where it writes, what it has refused."""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import NoReturn, Protocol

from .refused import Attempts, Refused, RefusedWait, refused

__all__ = ["Files", "Run", "mine", "refuse_wait"]


class Files(Protocol):
    """Where a run's files go."""

    def is_private(self, path: str) -> bool:
        """Whether what is written to this path, as the operating system is told it, stays with the run."""

    def place(self, path: str, flags: int) -> str:
        """The path to tell the operating system, to open this one with ``flags``. Raises OSError as opening would."""

    def exists(self, path: str) -> bool:
        """Whether the run sees something at this path."""

    def full(self) -> bool:
        """Whether the run has written as much as it may."""


class Run:
    """Whose effects count: every thread's, except those of threads that were there before.

    The threads in which autograd runs a backward on an accelerator are not known to ``threading`` and therefore count,
    wherever they were started.
    """

    def __init__(self, files: Files, inherited: frozenset[int]) -> None:
        self.pid, self.since = os.getpid(), time.time()
        self.files, self.inherited = files, inherited
        self.attempts = Attempts()
        current = threading.current_thread()
        self._bystanders = weakref.WeakSet(t for t in threading.enumerate() if t is not current)

    def concerns_me(self) -> bool:
        if os.getpid() != self.pid:
            return True
        # Not current_thread(): that would invent an entry for a thread of autograd's.
        thread = threading._active.get(threading.get_ident())  # type: ignore[attr-defined]
        return thread is None or thread not in self._bystanders

    def let_pass(self, thread: threading.Thread) -> None:
        self._bystanders.add(thread)

    def refuse(self, kind: type[Refused], what: str, name: str | None = None) -> NoReturn:
        self.attempts.note(what)
        raise refused(kind, what, name)


current: Run | None = None


def mine() -> Run | None:
    """The run under way, if what this thread does is part of it."""
    return current if current is not None and current.concerns_me() else None


def refuse_wait(what: str) -> NoReturn:
    """Raises where the run would wait without end; the clause says for what."""
    run = mine()
    if run is not None:
        run.refuse(RefusedWait, what)
    raise refused(RefusedWait, what)
