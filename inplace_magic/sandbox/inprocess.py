"""The room within the process, for where it cannot be copied: an undo log puts everything back.

Work is done under the session's own objects, so it goes more carefully than in a copy: what cannot be put back makes the
room decline, and a limit in time is kept by an exception that is raised into the thread at work.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from ..message import message
from ..session.run_cell import Touched
from .fork import Outcome

T = TypeVar("T")


class TimeIsUp(BaseException):
    """Raised into the thread that does the work when its time is over."""


def run(
    shell: Any,
    work: Callable[[], T],
    limit_s: float,
    on_wait: Callable[[float], None] | None = None,
    touched: Touched | None = None,
) -> Outcome[T]:
    """Does ``work`` and puts the session back. ``limit_s``: seconds after which the work is ended.

    ``on_wait`` is called now and then, from another thread, with the seconds so far.
    ``touched`` is what the work can get at; what cannot be put back is no reason to decline elsewhere.
    KeyboardInterrupt is passed on once everything is put back.
    """
    from .undo import CopyOnWrite, Declined, undone

    outcome: Outcome[T] = Outcome(failure="it came to no end")
    state = random.getstate()  # the imports above and below may draw from it
    touched = touched or Touched()
    with undone(shell, code=touched.code, gone=touched.gone) as log:
        random.setstate(state)
        if log.declined is None:
            try:
                with _quiet(shell), _limited(limit_s, on_wait), CopyOnWrite(log):
                    try:
                        log.interrupts.go_on()  # only here, so that none comes between what is set up and its end
                        outcome = Outcome(value=work())
                    finally:
                        log.interrupts.hold()
            except TimeIsUp:
                outcome = Outcome(failure=message("timed_out", seconds=limit_s), timed_out=True)
            except Declined as declined:
                outcome = Outcome(failure=declined.why)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # SystemExit as well: it is the cell that wants to end, not the person
                outcome = Outcome(failure=f"{type(error).__name__}: {error}"[:500])
    if log.interrupts.raised:  # whatever the cell, or torch on its way out, has made of it
        raise KeyboardInterrupt
    if log.declined is not None:
        return Outcome(failure=log.declined)
    if log.lost:
        return Outcome(failure=message("session_lost", what=log.lost[0]))
    return outcome


@contextlib.contextmanager
def _quiet(shell: Any) -> Iterator[None]:
    """What the work prints or displays is not shown."""
    publish = shell.display_pub.publish
    shell.display_pub.publish = lambda *args, **kwargs: None
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        shell.display_pub.publish = publish


@contextlib.contextmanager
def _limited(limit_s: float, on_wait: Callable[[float], None] | None) -> Iterator[None]:
    """Raises TimeIsUp in this thread when the time is over, between two of its instructions."""
    at_work = ctypes.c_ulong(threading.get_ident())
    lock, over, sent, start = threading.Lock(), threading.Event(), threading.Event(), time.monotonic()

    def watch() -> None:
        while (left := start + limit_s - time.monotonic()) > 0:
            if over.wait(min(left, 0.2)):
                return
            if on_wait is not None:
                with contextlib.suppress(Exception):
                    on_wait(time.monotonic() - start)
        with lock:
            if not over.is_set():
                sent.set()
                ctypes.pythonapi.PyThreadState_SetAsyncExc(at_work, ctypes.py_object(TimeIsUp))

    watching = threading.Thread(target=watch, name="inplace_magic", daemon=True)
    try:
        watching.start()
        yield
    finally:
        with contextlib.suppress(TimeIsUp):
            with lock:
                over.set()
            # What is on its way arrives here, not later. It cannot be called back: the interpreter would go on looking
            # for it at every call, and CPython 3.11 would never get past a call once somebody sets a trace function.
            for _ in range(100 if sent.is_set() else 0):
                pass
        watching.join(1.0)
