"""The forked room: work is done in a copy of the process, so nothing of the session can change.

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
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .apart import set_apart

T = TypeVar("T")


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """What came of some work in a room: its value, or in ``failure`` one clause that says why there is none.

    ``reached_out``: an effect outside the process was refused.
    """

    value: T | None = None
    failure: str | None = None
    timed_out: bool = False
    reached_out: bool = False


def can_fork() -> str | None:
    """None if the process can be forked safely, else the reason why not."""
    if not hasattr(os, "fork") or sys.platform == "win32":
        return "this system cannot fork a process"
    torch = sys.modules.get("torch")
    if torch is not None:
        if torch.cuda.is_initialized():
            return "CUDA is in use"
        mps = getattr(torch, "mps", None)
        if mps is not None and torch.backends.mps.is_available():
            return "MPS is in use"
        if hasattr(torch, "xpu") and torch.xpu.is_initialized():
            return "an XPU is in use"
    return None


def run(work: Callable[[], T], limit_s: float, on_wait: Callable[[float], None] | None = None) -> Outcome[T]:
    """Does ``work`` in a forked child and brings back its value, which has to be picklable.

    ``limit_s``: seconds after which the child is killed. ``on_wait`` is called now and then with the seconds so far.
    KeyboardInterrupt kills the child and is passed on.
    """
    with _interrupts_wait() as pressed:
        try:
            pid, read_end = _fork(work)
        except OSError as error:
            return Outcome(failure=f"the process could not be copied ({error.strerror})")
        return _collect(pid, read_end, limit_s, on_wait, pressed)


@contextlib.contextmanager
def ahead(work: Callable[[], T], limit_s: float) -> Iterator[Callable[[], Outcome[T]]]:
    """Begins ``work`` in a child while its parent does something else. Gives what to call, once, for the outcome.

    Left without having been asked, the child is ended. Raises OSError if the process cannot be copied.
    """
    child: tuple[int, int] | None = None
    asked = False

    def outcome() -> Outcome[T]:
        nonlocal asked
        assert child is not None
        with _interrupts_wait() as pressed:
            asked = True
            return _collect(*child, limit_s, None, pressed)

    try:
        with _interrupts_wait():
            child = _fork(work)
        yield outcome
    finally:
        if child is not None and not asked:
            _end(*child)


def _end(pid: int, read_end: int) -> None:
    os.close(read_end)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


@contextlib.contextmanager
def _interrupts_wait() -> Iterator[threading.Event]:
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


def _fork(work: Callable[[], Any]) -> tuple[int, int]:
    """The child's number, and the end of the pipe by which it answers."""
    read_end, write_end = os.pipe()
    # What stands in a buffer would be written twice.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    parent, state = os.getpid(), random.getstate()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # 3.12: forking beside threads; the child knows
            pid = os.fork()
        if pid == 0:
            os.close(read_end)
            random.setstate(state)  # Python seeds it anew in every child
            _child(work, write_end)
    except OSError:
        os.close(read_end)
        raise
    finally:
        if os.getpid() != parent:
            os._exit(1)
        os.close(write_end)
    return pid, read_end


def _child(work: Callable[[], Any], write_end: int) -> None:
    """Never returns."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        gc.disable()  # a collection would copy every page that the parent still shares
        _hush()
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.set_num_threads(1)
        shared = set_apart([write_end])
        if shared is not None:
            data = pickle.dumps(("failure", shared))
        else:
            data = pickle.dumps(("value", work()))
            status = 0
    except BaseException as error:
        data = pickle.dumps(("failure", f"{type(error).__name__}: {error}"[:500]))
    try:
        with os.fdopen(write_end, "wb") as pipe:
            pipe.write(data)
    finally:
        os._exit(status)


class _Nowhere(io.TextIOBase):
    """An output that keeps nothing."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        return len(text)

    def writable(self) -> bool:
        return True


def _hush() -> None:
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


def _collect(
    pid: int, read_end: int, limit_s: float, on_wait: Callable[[float], None] | None, pressed: threading.Event
) -> Outcome[Any]:
    start = time.monotonic()
    chunks: list[bytes] = []
    try:
        while True:
            left = limit_s - (time.monotonic() - start)
            if left <= 0:
                return Outcome(failure=f"it took longer than {limit_s:.3g} s", timed_out=True)
            if pressed.is_set():
                return Outcome(failure="it was interrupted")
            ready, _, _ = select.select([read_end], [], [], min(left, 0.2))
            if ready:
                chunk = os.read(read_end, 1 << 20)
                if not chunk:
                    break
                chunks.append(chunk)
            elif on_wait is not None:
                on_wait(time.monotonic() - start)
    finally:
        _end(pid, read_end)
    if not chunks:
        return Outcome(failure="the copy of the process crashed")
    kind, value = pickle.loads(b"".join(chunks))
    return Outcome(value=value) if kind == "value" else Outcome(failure=value)
