"""The room within the process: run something, and everything of the session is afterwards as it was before.

Used where the process cannot be forked. Python objects are noted on entry and compared on the way out. Of tensors only
facts are noted; contents are copied ahead of the first write to their storage, on their device. That needs to be told of
writes: enter `CopyOnWrite` within, or call `announce` from a function mode of one's own.

    with undone(shell, code=[code]) as log:
        if log.declined is None:
            with CopyOnWrite(log):
                exec(code, shell.user_ns)
    log.declined, log.lost

Ctrl-C waits until everything is put back, but for a stretch between ``log.interrupts.go_on()`` and ``hold()``.
"""

from __future__ import annotations

import gc
import signal
import threading
import traceback
import types
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from . import private, surroundings, walk
from .tensors import Declined, Tensors
from .writes import CopyOnWrite, announce

__all__ = ["CopyOnWrite", "Declined", "UndoLog", "announce", "undone"]


class UndoLog:
    """What has to be told during the rerun, and what came of it.

    ``declined`` says why the rerun must not be made, or not be gone on with (then `Declined` was raised as well).
    ``lost`` says what could not be put back; anything in it is a defect. ``interrupts`` holds Ctrl-C back, from taking
    stock to the end, but for the time between its ``go_on`` and its ``hold``.
    """

    def __init__(self) -> None:
        self.interrupts = Interrupts()
        self.declined: str | None = None
        self.lost: list[str] = []
        self._tensors = Tensors()

    def before_write(self, tensor: torch.Tensor) -> None:
        """Must be called ahead of every write in place. Cheap for a storage that is new or copied. May raise `Declined`."""
        with self._declining():
            self._tensors.before_write(tensor)

    def before_history(self, tensor: torch.Tensor) -> None:
        """Must be called ahead of a write that gives the tensor a new grad_fn. May raise `Declined`."""
        with self._declining():
            self._tensors.before_history(tensor)

    def before_backward(self, roots: Any, retain_graph: bool | None) -> None:
        """Must be called ahead of every backward. May raise `Declined`."""
        with self._declining():
            self._tensors.before_backward(roots, retain_graph)

    @contextmanager
    def _declining(self) -> Iterator[None]:
        try:
            yield
        except Declined as e:
            self.declined = self.declined or e.why
            raise


@contextmanager
def undone(
    shell: Any,
    *,
    code: Iterable[types.CodeType] = (),
    gone: Collection[str] = (),
    extra_roots: Iterable[Any] = (),
) -> Iterator[UndoLog]:
    """Puts the session back on the way out, however that is taken.

    ``code`` is what will run: what it cannot reach by name need not be refused (a generator elsewhere in the
    namespace). Without it, everything counts as within reach, but for the names that are ``gone`` before it runs.
    """
    log = UndoLog()
    with _interrupts(log.interrupts), _own_garbage() as collect:
        found = walk.Walk(shell.user_ns, log._tensors)
        ways = surroundings.capture(shell)
        with private.unobserved(), _no_collection():
            found.run(code, gone, extra_roots)
        thread = surroundings.own_thread(shell.user_ns)
        log.declined = found.declined or (f"thread {thread!r} of this session is running" if thread else None)
        if not private.observing():
            log.declined = "torch's function modes are switched off, without which writes cannot be seen"
        try:
            yield log
        except BaseException as error:
            log.interrupts.hold()
            _let_go(error)
            raise
        finally:
            log.interrupts.hold()
            _restore(log, found, ways, collect)


def _restore(log: UndoLog, found: walk.Walk, ways: list[surroundings.Restore], collect: Callable[[], Any]) -> None:
    """Every part is tried, whatever becomes of the others."""
    with private.unobserved():
        _try(log, log._tensors.missed)
        _try(log, walk.restore, found.restorers)
        _try(log, log._tensors.restore)
    collect()  # ahead of what surrounds the objects: a generator that is thrown away may set it on its way out
    _try(log, surroundings.restore, ways)


def _try(log: UndoLog, part: Callable[..., Iterable[str]], *args: Any) -> None:
    try:
        log.lost.extend(part(*args))
    except Exception as e:
        log.lost.append(f"{type(e).__name__}: {e}")


@contextmanager
def _no_collection() -> Iterator[None]:
    """The walk makes many objects and no garbage: collecting meanwhile would cost several times the walk."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _let_go(error: BaseException | None) -> None:
    """Of all that the frames it went through still hold, a context manager that was interrupted half-way for one."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


@contextmanager
def _own_garbage() -> Iterator[Callable[[], Any]]:
    """Gives a call that collects what has become garbage within. What was there before is not looked through for it.

    Not possible, and not done, in a session that has frozen objects itself: there is one such place for all.
    """
    if gc.get_freeze_count():
        yield lambda: None
        return
    gc.freeze()
    try:
        yield gc.collect
    finally:
        gc.unfreeze()


class Interrupts:
    """Lets Ctrl-C wait, or passes it on to what saw to it before."""

    def __init__(self) -> None:
        self.before: Any = None
        self.wait = True
        self.pressed = False
        self.raised = False  # into what was going on

    def hold(self) -> None:
        self.wait = True

    def go_on(self) -> None:
        """Do not wait any longer, and pass on what has waited."""
        self.wait = False
        if self.pressed:
            self.pressed = False
            self(signal.SIGINT, None)

    def __call__(self, number: int, frame: types.FrameType | None) -> None:
        if self.wait or not callable(self.before):
            self.pressed = True
        else:
            try:
                self.before(number, frame)
            except BaseException:
                self.raised = True
                raise


@contextmanager
def _interrupts(interrupts: Interrupts) -> Iterator[None]:
    """Ctrl-C waits while the way back is gone; afterwards it does what it did before."""
    on_main = threading.current_thread() is threading.main_thread()
    before = interrupts.before = signal.getsignal(signal.SIGINT) if on_main else None
    try:
        if before is not None:
            signal.signal(signal.SIGINT, interrupts)
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)
    if interrupts.pressed and callable(before):
        before(signal.SIGINT, None)
