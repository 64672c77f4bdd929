"""The door to the two rooms in which a cell can run once more without a trace.

A copy of the process where it can be forked; else the process itself, with an undo log. Whoever comes in by this door
need not know in which room the work is done.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar

from ..session.run_cell import Touched
from . import fork
from .process_memory import beside
from .side_effects.guard import Blocked, guarded

T = TypeVar("T")
Room = Literal["auto", "copy", "process"]


def closed(room: Room = "auto") -> str | None:
    """None if there is a room to run in, else why there is none."""
    return fork.can_fork() if room == "copy" else None


def is_copy(room: Room) -> bool:
    """Whether work is done in a copy of the process."""
    return room == "copy" or (room == "auto" and fork.can_fork() is None)


def run(
    shell: Any,
    work: Callable[[], T],
    limit_s: float,
    on_wait: Callable[[float], None] | None = None,
    room: Room = "auto",
    touches: Callable[[], Touched] | None = None,
    effects: bool = False,
) -> fork.Outcome[T]:
    """Does ``work`` where nothing of the session can change, and nothing outside of the process either.

    ``touches`` tells what the work can get at, which the room in the process asks for.
    An attempt to reach outside (a file written, a process, a connection) ends it, and the outcome says which; unless
    ``effects`` allows that.
    """
    outcome: fork.Outcome[Any]
    if is_copy(room):
        outcome = fork.run(lambda: _guarded(work, effects), limit_s, on_wait)
    else:
        from . import inprocess

        outcome = inprocess.run(
            shell, lambda: _guarded(work, effects), limit_s, on_wait, touches() if touches is not None else None
        )
    return _judged(outcome)


@contextlib.contextmanager
def ahead(
    work: Callable[[], T], limit_s: float, room: Room = "auto", effects: bool = False
) -> Iterator[Callable[[], fork.Outcome[T]] | None]:
    """Begins ``work`` on another core; gives what to call for the outcome, or None where there is no room for that."""

    def behind(tell: Callable[[T], None]) -> T:
        fork.give_way()
        return work()

    with contextlib.ExitStack() as stack:
        yield _begun(stack, behind, limit_s, None, room, effects)


@contextlib.contextmanager
def telling(
    shell: Any,
    work: Callable[[Callable[[T], None] | None], T],
    limit_s: float,
    on_wait: Callable[[float], None] | None = None,
    room: Room = "auto",
    touches: Callable[[], Touched] | None = None,
    effects: bool = False,
) -> Iterator[Callable[[], fork.Outcome[T]]]:
    """``run`` for work that can tell something before it is over, and then goes on on another core while that is used.

    Gives what to call for the outcome, and again while there is ``more``. Where there is no room for that, the work gets
    None for what it would tell by.
    """
    with contextlib.ExitStack() as stack:
        outcome = _begun(stack, work, limit_s, on_wait, room, effects)
        yield outcome or (lambda: run(shell, lambda: work(None), limit_s, on_wait, room, touches, effects))


def _begun(
    stack: contextlib.ExitStack,
    work: Callable[[Callable[[T], None]], T],
    limit_s: float,
    on_wait: Callable[[float], None] | None,
    room: Room,
    effects: bool,
) -> Callable[[], fork.Outcome[T]] | None:
    if not is_copy(room) or _cores() < 2 or not beside():
        return None

    def guarded_work(tell: Callable[[Any], None]) -> Any:
        return _guarded(lambda: work(lambda value: tell((value, None))), effects)

    try:
        outcome = stack.enter_context(fork.ahead(guarded_work, limit_s, on_wait))
    except OSError:
        return None
    return lambda: _judged(outcome())


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _judged(outcome: fork.Outcome[Any]) -> fork.Outcome[Any]:
    if outcome.failure is not None or outcome.value is None:
        return outcome
    value, attempt = outcome.value
    if attempt is not None:
        return fork.Outcome(failure=f"the cell {attempt}", reached_out=True)
    return fork.Outcome(value=value, more=outcome.more)


def _guarded(work: Callable[[], T], effects: bool) -> tuple[T | None, str | None]:
    if effects:
        return work(), None
    value = None
    with guarded() as attempts, contextlib.suppress(Blocked):
        value = work()
    return value, attempts.first
