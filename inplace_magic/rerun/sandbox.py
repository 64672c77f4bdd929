"""The door to the two rooms in which a cell can run once more without a trace."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from . import forked
from .guard import Blocked, guarded

T = TypeVar("T")


def closed() -> str | None:
    """None if there is a room to run in, else why there is none."""
    return forked.can_fork()


def run(work: Callable[[], T], limit_s: float, on_wait: Callable[[float], None] | None = None) -> forked.Outcome[T]:
    """Does ``work`` where nothing of the session can change, and nothing outside of the process either.

    An attempt to reach outside (a file written, a process, a connection) ends it, and the outcome says which.
    """
    outcome: forked.Outcome[Any] = forked.run(lambda: _guarded(work), limit_s, on_wait)
    if outcome.failure is not None or outcome.value is None:
        return outcome
    value, attempt = outcome.value
    if attempt is not None:
        return forked.Outcome(failure=f"the cell {attempt}")
    return forked.Outcome(value=value)


def _guarded(work: Callable[[], T]) -> tuple[T | None, str | None]:
    value = None
    with guarded() as attempts:
        with contextlib.suppress(Blocked):
            value = work()
    return value, attempts.first
