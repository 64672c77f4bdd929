"""The fork: work is done in a copy of the process, so nothing of the session can change.

The child keeps to one torch thread (an OpenMP pool does not survive a fork), has its output thrown away, never
touches the kernel's sockets, and ends without cleaning up. Only what it pickles comes back.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import io
import os
import pickle
import random
import shutil
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, Pipe
from typing import Any, Generic, TypeVar

from ..message import message
from .inherited import set_apart
from .lifetime import die_with, scratch_folder
from .unseen import Deaths, own_hooks_aside

T = TypeVar("T")
Reopen = Callable[[str, int], int]
Preparation = Callable[[str], Reopen | None]
kept_open: set[int] = set()  # descriptors that a child continues to share with its parent
deaths = Deaths()
ENOUGH = getattr(signal, "SIGRTMAX", signal.SIGTERM)  # tells a child that its time is over; hardly anybody's own
GRACE_S = 3.0  # for a child to answer what it knows, once its time is over


class Ended(BaseException):
    """Raised in work whose time is over, or that a person has stopped: what it knows by then may be its answer."""


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """What came of some work in a sandbox: its value, or in ``failure`` one clause that says why there is none.

    ``refused``: a clause on the first effect outside the process that was refused, whatever the work has made of that.
    ``more``: the work continues, and will answer once more. ``timed_out`` beside a value: that is what was known when
    the time was over.
    """

    value: T | None = None
    failure: str | None = None
    timed_out: bool = False
    refused: str | None = None
    more: bool = False


def run(
    work: Callable[[], T],
    limit_s: float,
    on_wait: Callable[[float], None] | None = None,
    prepare: Preparation | None = None,
) -> Outcome[T]:
    """Does ``work`` in a forked child and brings back its value, which has to be picklable.

    ``limit_s``: seconds after which the child is killed. ``on_wait`` is called now and then with the seconds so far.
    ``prepare`` is called first in the child, with the path of a folder that it may make and that is removed afterwards;
    it gives what opens a file of the session's anew, for the child alone.
    KeyboardInterrupt kills the child and is passed on.
    """
    with interrupts_wait() as pressed:
        try:
            child = Child(lambda tell: work(), limit_s, prepare)
        except OSError as error:
            return Outcome(failure=message("no_copy", problem=error.strerror))
        try:
            return child.outcome(on_wait, pressed)
        finally:
            child.end()


@contextlib.contextmanager
def ahead(
    work: Callable[[Callable[[T], None]], T],
    limit_s: float,
    on_wait: Callable[[float], None] | None = None,
    prepare: Preparation | None = None,
) -> Iterator[Callable[[], Outcome[T]]]:
    """Begins ``work`` in a child while its parent does something else. Gives what to call for the outcome.

    ``work`` gets a function to tell a value by before it has come to its end; for each of those what is given is to be
    called once more. KeyboardInterrupt, too, leaves it to be called once more, for what was known by then. Left at any
    time, the child is ended. Raises OSError if the process cannot be copied.
    """
    child: Child[T] | None = None
    answers: Answers[T] = Answers()

    def outcome() -> Outcome[T]:
        assert child is not None
        return answers.next(partial(child.outcome, on_wait))

    try:
        with interrupts_wait():
            child = Child(work, limit_s, prepare)
        yield outcome
    finally:
        if child is not None:
            with interrupts_wait():
                child.end()


class Answers(Generic[T]):
    """The answers of some work. One that comes with Ctrl-C, which has to be passed on first, is kept for the next call."""

    def __init__(self) -> None:
        self._kept: Outcome[T] | None = None

    def next(self, wait: Callable[[threading.Event], Outcome[T]]) -> Outcome[T]:
        """What ``wait`` returns; it is given the event that Ctrl-C sets."""
        kept, self._kept = self._kept, None
        if kept is not None:
            return kept
        with interrupts_wait() as pressed:
            answer = wait(pressed)
            if pressed.is_set() and answer.failure is None:
                self._kept = answer
        return answer


def late(limit_s: float) -> Outcome[Any]:
    """What comes of work that has no answer when its time is over."""
    return Outcome(failure=message("timed_out", seconds=limit_s), timed_out=True)


def answered(kind: str, value: Any, limit_s: float, asked: bool) -> Outcome[Any]:
    """What some work has answered; ``asked``: because its time was over."""
    if kind == "failure":
        return late(limit_s) if asked else Outcome(failure=value)
    return Outcome(value=value, more=kind == "more", timed_out=asked)


def give_way() -> None:
    """Called in a child whose answer is not waited for yet: the one that is waited for goes first, where cores are few."""
    os.nice(5)


class Child(Generic[T]):
    """A copy of the process at work, and the pipe by which it answers. Raises OSError if there can be none."""

    def __init__(self, work: Callable[[Callable[[T], None]], T], limit_s: float, prepare: Preparation | None) -> None:
        self._start, self._limit_s = time.monotonic(), limit_s
        self._until, self._asked = self._start + limit_s, False
        self._scratch = scratch_folder()
        self._pid, self.pipe = _fork(work, None if prepare is None else partial(prepare, self._scratch))
        deaths.expect(self._pid)

    def outcome(self, on_wait: Callable[[float], None] | None, pressed: threading.Event) -> Outcome[T]:
        """The next answer, waited for until the time is over or Ctrl-C is pressed; then what is known is asked for."""
        while not pressed.is_set():
            left = self._until - time.monotonic()
            if self.pipe.poll(max(0.0, min(left, 0.2))):  # what has come in time may be asked for late
                break
            if left <= 0:
                if self._asked:
                    return late(self._limit_s)
                self.enough()
            elif on_wait is not None:
                on_wait(time.monotonic() - self._start)
        else:
            self.enough()
            return Outcome(failure=message("interrupted"))
        try:
            kind, value = pickle.loads(self.pipe.recv_bytes())
        except (EOFError, OSError):
            kind, value = "failure", message("copy_crashed")
        return answered(kind, value, self._limit_s, self._asked)

    def enough(self) -> None:
        """It is to answer now what it knows. May be called again."""
        if not self._asked and not self.pipe.closed:
            self._asked, self._until = True, time.monotonic() + GRACE_S
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, ENOUGH)

    def end(self) -> None:
        """At once, whatever it is doing. May be called again."""
        if self.pipe.closed:
            return
        self.pipe.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        deaths.forget(self._pid)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        shutil.rmtree(self._scratch, ignore_errors=True)


def heed_enough() -> None:
    """To be called in a process that works: when it is told that its time is over, its work raises ``Ended``, once."""

    def end(number: int, frame: Any) -> None:
        signal.signal(ENOUGH, signal.SIG_IGN)
        raise Ended

    signal.signal(ENOUGH, end)


@contextlib.contextmanager
def interrupts_wait() -> Iterator[threading.Event]:
    """Ctrl-C is only noted, so that it never comes between a child and its parent's care for it; then it is passed on."""
    pressed = threading.Event()
    on_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT) if on_main else None
    if not callable(before):
        yield pressed
        return
    signal.signal(signal.SIGINT, lambda number, frame: pressed.set())
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)
        if pressed.is_set():
            before(signal.SIGINT, None)


def _fork(
    work: Callable[[Callable[[Any], None]], Any], prepare: Callable[[], Reopen | None] | None
) -> tuple[int, Connection]:
    """The child's number, and the end of the pipe by which it answers."""
    ours, theirs = Pipe(duplex=False)
    # What stands in a buffer would be written twice.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    parent, state = os.getpid(), random.getstate()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # 3.12: forking beside threads; the child knows
            with own_hooks_aside():
                pid = os.fork()
        if pid == 0:
            ours.close()
            random.setstate(state)  # Python seeds it anew in every child
            die_with(parent)
            _child(work, theirs, prepare)
    except OSError:
        ours.close()
        raise
    finally:
        if os.getpid() != parent:
            os._exit(1)
        theirs.close()
    return pid, ours


def _child(
    work: Callable[[Callable[[Any], None]], Any], pipe: Connection, prepare: Callable[[], Reopen | None] | None
) -> None:
    """Never returns."""
    status = 1

    def tell(value: Any) -> None:
        pipe.send_bytes(pickle.dumps(("more", value)))
        give_way()

    try:
        os.setpgrp()  # Ctrl-C is the session's, which says what becomes of us
        signal.signal(signal.SIGINT, signal.default_int_handler)
        heed_enough()
        gc.disable()  # a collection would copy every page that the parent still shares
        hush()
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.set_num_threads(1)
        shared = set_apart([pipe.fileno(), *kept_open], prepare() if prepare is not None else None)
        if shared is not None:
            data = pickle.dumps(("failure", shared))
        else:
            data = pickle.dumps(("value", work(tell)))
            status = 0
    except BaseException as error:
        data = pickle.dumps(("failure", clause_of(error)))
    try:
        pipe.send_bytes(data)
    finally:
        os._exit(status)


def clause_of(error: BaseException) -> str:
    """What is said of an error that ended work: its own clause, if it has one."""
    clause: str | None = getattr(error, "clause", None)
    return clause if clause is not None else f"{type(error).__name__}: {error}"[:500]


class _Nowhere(io.TextIOBase):
    """An output that keeps nothing."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        return len(text)

    def writable(self) -> bool:
        return True


def hush() -> None:
    """Output goes nowhere, and the sockets that the child shares with a kernel are not written to."""
    sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = _Nowhere()  # type: ignore[assignment,misc]
    faulthandler.disable()  # it holds a descriptor of its own, and a crash in here is none of the person's
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        with contextlib.suppress(OSError):
            os.dup2(null, descriptor)
    zmq = sys.modules.get("zmq")
    if zmq is not None:
        for name in ("send", "send_multipart", "send_string", "send_json", "send_pyobj"):
            with contextlib.suppress(Exception):
                setattr(zmq.Socket, name, lambda *args, **kwargs: None)
