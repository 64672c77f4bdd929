"""The replica: work is done in a fresh interpreter that has been made like the session, where no copy of it serves.

Here is the session's side; ``server`` is the other. The two speak over a pipe of their own, no port is opened. What the
session's objects weigh travels in a file in memory. All of it ends with the report that asked for it.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from typing import Any, Generic, TypeVar

from ...message import message
from ..fork import GRACE_S, Answers, Outcome, answered, deaths, interrupts_wait, late
from . import messages as m
from .carrier import Carrier
from .surroundings import current_folder

T = TypeVar("T")
START_S = 60.0  # for an interpreter to start and import what the session has imported


class Replica:
    """One interpreter, and the jobs that it was given. ``close`` ends it, whatever it is doing."""

    def __init__(self, setting: m.Setting) -> None:
        """Raises OSError where no process can be started."""
        self.carrier = Carrier()
        self.forks: bool | None = None  # whether it serves more than one job; None until it is ready
        self.used = False
        self._frames: dict[int, deque[tuple[str, Any]]] = {0: deque()}
        ours, theirs = Pipe()
        self._pipe = ours
        try:
            self._process = _started(theirs, self.carrier.descriptor)
        except OSError:
            self.close()
            raise
        finally:
            theirs.close()
        deaths.expect(self._process.pid)
        self._say(setting)

    @property
    def full(self) -> bool:
        """Whether no further job can be given."""
        return self.used and not self.forks

    def ready(self, on_wait: Callable[[float], None] | None = None) -> None:
        """Waits until it has started. Raises TimeoutError or EOFError if it has not."""
        if self.forks is None:
            _, self.forks = self.next_answer(0, time.monotonic() + START_S, on_wait)

    def deliver(self, parcel: m.Delivery) -> None:
        self._say(parcel)

    def begin(self, job: m.Job) -> None:
        self.used = True
        self._frames[job.number] = deque()
        self._say(job)

    def enough(self, number: int) -> None:
        """Asks a job for what it knows."""
        if number in self._frames and not self._pipe.closed:
            with contextlib.suppress(OSError):
                self._say(m.Enough(number))

    def end(self, number: int) -> None:
        """Ends a job at once."""
        if self._frames.pop(number, None) is not None and not self._pipe.closed:
            with contextlib.suppress(OSError):
                self._say(m.End(number))

    def next_answer(
        self,
        number: int,
        until: float,
        on_wait: Callable[[float], None] | None = None,
        pressed: threading.Event | None = None,
    ) -> tuple[str, Any]:
        """(kind, value) that this job answers next; a failure as soon as Ctrl-C is ``pressed``.

        Raises TimeoutError when it is ``until`` (by ``time.monotonic``), EOFError where the replica has come to an end.
        """
        start = time.monotonic()
        while not self._frames[number]:
            if pressed is not None and pressed.is_set():
                return "failure", message("interrupted")
            left = until - time.monotonic()
            if self._pipe.poll(max(0.0, min(left, 0.2))):
                self._receive()
            elif left <= 0:
                raise TimeoutError
            elif on_wait is not None:
                on_wait(time.monotonic() - start)
        return self._frames[number].popleft()

    def _receive(self) -> None:
        try:
            number, data = pickle.loads(self._pipe.recv_bytes())
        except OSError as error:
            raise EOFError from error
        if number in self._frames:  # else it was ended meanwhile
            self._frames[number].append(pickle.loads(data))

    def _say(self, message: Any) -> None:
        self._pipe.send_bytes(pickle.dumps(message))

    def close(self) -> None:
        """May be called again."""
        if self._pipe.closed:
            return
        self._pipe.close()
        self.carrier.close()
        process = getattr(self, "_process", None)
        if process is not None:
            with interrupts_wait():
                process.kill()
                deaths.forget(process.pid)
                process.wait()


def _started(pipe: Connection, carrier: int) -> subprocess.Popen[bytes]:
    """An interpreter with this one's options. Its own package is found where ours is."""
    inherited = [pipe.fileno(), carrier]
    code = (
        # Of the seconds that torch's import takes a fifth goes to collections, which find nothing.
        f"import gc, sys; gc.disable(); sys.path[:] = {[p for p in sys.path if isinstance(p, str)]!r}; "
        f"from {__name__}.server import main; main({inherited[0]}, {inherited[1]}, {os.getpid()})"
    )
    options: dict[str, Any] = {"start_new_session": True, "pass_fds": inherited}
    if sys.platform == "win32":
        for handle in inherited:
            os.set_handle_inheritable(handle, True)
        options = {"close_fds": True, "startupinfo": subprocess.STARTUPINFO(lpAttributeList={"handle_list": inherited})}
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    nothing = subprocess.DEVNULL
    if current_folder() is None:
        options["cwd"] = os.path.abspath(os.sep)  # the session's folder is gone; what is imported may ask for it
    return subprocess.Popen(
        [sys.executable, *flags, "-c", code], stdin=nothing, stdout=nothing, stderr=nothing, **options
    )


class Task(Generic[T]):
    """A job at work in a replica."""

    def __init__(self, replica: Replica, job: m.Job) -> None:
        self._replica, self._job = replica, job
        self._until: float | None = None  # its time begins when it does
        self._asked = False
        self._answers: Answers[T] = Answers()
        replica.begin(job)

    def outcome(self, on_wait: Callable[[float], None] | None = None) -> Outcome[T]:
        """The next answer, waited for until the job's time is over or Ctrl-C is pressed; then what is known is asked for."""
        return self._answers.next(lambda pressed: self._outcome(on_wait, pressed))

    def _outcome(self, on_wait: Callable[[float], None] | None, pressed: threading.Event) -> Outcome[T]:
        try:
            kind, value = self._answer(on_wait, pressed)
        except TimeoutError:
            self.end()
            return late(self._job.limit_s)
        except (EOFError, OSError):
            return Outcome(failure=message("replica_crashed"))
        if pressed.is_set():
            self._enough()
            if kind == "failure":
                return Outcome(failure=value)
        return answered(kind, value, self._job.limit_s, self._asked)

    def _answer(self, on_wait: Callable[[float], None] | None, pressed: threading.Event) -> tuple[str, Any]:
        while True:
            until = time.monotonic() + START_S if self._until is None else self._until
            try:
                kind, value = self._replica.next_answer(self._job.number, until, on_wait, pressed)
            except TimeoutError:
                if self._asked or self._until is None:
                    raise
                self._enough()
                continue
            if kind != "begun":
                return kind, value
            self._until = self._until or time.monotonic() + self._job.limit_s

    def _enough(self) -> None:
        """The job is to answer now what it knows."""
        if not self._asked:
            self._asked, self._until = True, time.monotonic() + GRACE_S
            self._replica.enough(self._job.number)

    def end(self) -> None:
        """At once, whatever it is doing. May be called again."""
        self._replica.end(self._job.number)
