"""The door to the places where a cell can run once more without a trace.

A copy of the process where it can be forked; else the process itself, with an undo log. Whoever comes in by this door
need not know in which place the work is done.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from ..message import message
from ..session.run_cell import Touched
from . import fork
from .fork import Outcome
from .process_memory import beside
from .side_effects import contained, make_private

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Room = Literal["auto", "copy", "process"]


class Work(Protocol[T_co]):
    """Something to do in a session that is given up afterwards: a frozen record that can be pickled."""

    def __call__(self, shell: Any, tell: Callable[[Any], None] | None = None) -> T_co:
        """Does it. ``tell`` is for what is known before the end; None where nobody would hear it."""
        ...

    def touched(self, shell: Any) -> Touched:
        """What of the session it can get at."""
        ...


@dataclass(frozen=True)
class Policy:
    """Where work may be done. ``allow_side_effects``: it may reach outside, as the cell did."""

    room: Room = "auto"
    allow_side_effects: bool = False


class Sandbox:
    """Where the reruns for one report are made. A context manager: what it has started ends with it."""

    def __init__(self, shell: Any, policy: Policy | None = None) -> None:
        self.shell, self.policy = shell, policy or Policy()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *exception: Any) -> None:
        pass

    def closed(self) -> str | None:
        """None if there is a place to run in, else why there is none."""
        return fork.can_fork() if self.policy.room == "copy" else None

    @property
    def is_copy(self) -> bool:
        """Whether work is done in a copy of the process."""
        return self.policy.room == "copy" or (self.policy.room == "auto" and fork.can_fork() is None)

    def run(self, work: Work[T], limit_s: float, on_wait: Callable[[float], None] | None = None) -> Outcome[T]:
        """Does ``work`` where nothing of the session can change, and nothing outside of the process either.

        ``limit_s``: seconds after which it is ended. ``on_wait`` is called now and then with the seconds so far.
        Files that it writes are its own. An attempt to reach further outside (a process, a connection) is an error to it,
        and the outcome says which; unless the policy allows that.
        """
        outcome: Outcome[Any]
        if self.is_copy:
            outcome = fork.run(lambda: self._contained(work), limit_s, on_wait, self._preparation)
        else:
            from . import inprocess

            touched = work.touched(self.shell)
            outcome = inprocess.run(self.shell, lambda: self._contained(work), limit_s, on_wait, touched)
        return _judged(outcome)

    @contextlib.contextmanager
    def ahead(self, work: Work[T], limit_s: float) -> Iterator[Callable[[], Outcome[T]] | None]:
        """Begins ``work`` on another core; gives what to call for the outcome, or None where there is no room for that."""
        with contextlib.ExitStack() as stack:
            yield self._begun(stack, work, limit_s, None, waited_for=False)

    @contextlib.contextmanager
    def telling(
        self, work: Work[T], limit_s: float, on_wait: Callable[[float], None] | None = None
    ) -> Iterator[Callable[[], Outcome[T]]]:
        """``run`` for work that can tell something before it is over, and then continues on another core meanwhile.

        Gives what to call for the outcome, and again while there is ``more``. Where there is no room for that, the work
        gets None for what it would tell by.
        """
        with contextlib.ExitStack() as stack:
            outcome = self._begun(stack, work, limit_s, on_wait)
            yield outcome or (lambda: self.run(work, limit_s, on_wait))

    def _begun(
        self,
        stack: contextlib.ExitStack,
        work: Work[T],
        limit_s: float,
        on_wait: Callable[[float], None] | None,
        waited_for: bool = True,
    ) -> Callable[[], Outcome[T]] | None:
        if not self.is_copy or _cores() < 2 or not beside():
            return None

        def begun(tell: Callable[[Any], None]) -> Any:
            if waited_for:
                return self._contained(work, lambda value: tell((value, None)))
            fork.give_way()
            return self._contained(work)

        try:
            outcome = stack.enter_context(fork.ahead(begun, limit_s, on_wait, self._preparation))
        except OSError:
            return None
        return lambda: _judged(outcome())

    def _contained(self, work: Work[T], tell: Callable[[T], None] | None = None) -> tuple[T, str | None]:
        """What the work returns, and the first effect that was refused."""
        if self.policy.allow_side_effects:
            return work(self.shell, tell), None
        with contained() as attempts:
            value = work(self.shell, tell)
        return value, attempts.first

    @property
    def _preparation(self) -> fork.Preparation | None:
        return None if self.policy.allow_side_effects else make_private


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _judged(outcome: Outcome[Any]) -> Outcome[Any]:
    if outcome.failure is not None or outcome.value is None:
        return outcome
    value, refused = outcome.value
    return Outcome(value=value, more=outcome.more, refused=refused)
