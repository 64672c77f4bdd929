"""The session does not notice that its process was copied: neither its hooks around forks, nor its handler of SIGCHLD.

Hooks of installed libraries do run, since locks of theirs may have to be held or made anew.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sysconfig
import threading
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["Deaths", "own_hooks_aside"]

_INSTALLED = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_lists: list[list[Any]] | None = None


@contextlib.contextmanager
def own_hooks_aside() -> Iterator[None]:
    """While active, a fork calls no hook of the person's own (``os.register_at_fork``), in the parent nor in the child."""
    taken = [(hooks, list(hooks)) for hooks in _hook_lists() if any(_is_own(hook) for hook in hooks)]
    for hooks, before in taken:
        hooks[:] = [hook for hook in before if not _is_own(hook)]
    try:
        yield
    finally:
        for hooks, before in taken:
            hooks[:] = before


def _hook_lists() -> list[list[Any]]:
    """The interpreter's three lists of hooks. Nothing gives them out; but they are lists, and a hook of ours is in each.

    Found once. Where they are not found this way, no hook is left out.
    """
    global _lists
    if _lists is None:
        marks: list[Callable[[], None]] = [lambda: None, lambda: None, lambda: None]
        os.register_at_fork(before=marks[0], after_in_parent=marks[1], after_in_child=marks[2])
        found = [r for r in gc.get_referrers(*marks) if type(r) is list and r is not marks]
        _lists = [r for r in found if any(mark is hook for mark in marks for hook in r)]
        for hooks in _lists:
            hooks[:] = [hook for hook in hooks if not any(hook is mark for mark in marks)]
    return _lists


def _is_own(hook: Any) -> bool:
    function = getattr(hook, "__func__", hook)
    code = getattr(function, "__code__", None)
    return code is not None and not code.co_filename.startswith((*_INSTALLED, "<frozen"))


class Deaths:
    """Keeps the deaths of our own children from the session's handler of SIGCHLD, written in Python, if it has one."""

    def __init__(self) -> None:
        self._ours: set[int] = set()
        self._theirs: Any = None

    def expect(self, pid: int) -> None:
        """A child of ours was started."""
        if not hasattr(os, "waitid") or threading.current_thread() is not threading.main_thread():
            return
        if not self._ours:
            handler = signal.getsignal(signal.SIGCHLD)
            if not callable(handler):
                return
            self._theirs = handler
            signal.signal(signal.SIGCHLD, self._handle)
        self._ours.add(pid)

    def forget(self, pid: int) -> None:
        """It is about to end and is not waited for yet."""
        if pid not in self._ours:
            return
        with contextlib.suppress(OSError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # the signal comes while it can still be told whose it is
        self._ours.discard(pid)
        on_main = threading.current_thread() is threading.main_thread()
        if not self._ours and on_main and signal.getsignal(signal.SIGCHLD) == self._handle:
            signal.signal(signal.SIGCHLD, self._theirs)

    def _handle(self, number: int, frame: Any) -> None:
        if not any(_has_ended(os.P_PID, pid) for pid in self._ours):
            self._theirs(number, frame)
            return
        ended = _has_ended(os.P_ALL, 0)
        if ended and ended not in self._ours:
            self._theirs(number, frame)


def _has_ended(kind: int, which: int) -> int:
    """The number of a child that has ended and was not waited for; 0 if there is none."""
    try:
        found = os.waitid(kind, which, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except OSError:
        return 0
    return 0 if found is None else found.si_pid
