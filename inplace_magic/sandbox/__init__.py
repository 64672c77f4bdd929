"""The door to the places where a cell can run once more without a trace.

A person's session is a place where nobody else works: every rerun is in another process. That is a copy of the session's
where one can be made and can run a backward, since it is there at once; else a replica, an interpreter that is made like it.
Whoever comes in by this door need not know in which place the work is done.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from ..message import kind_of, message
from ..session.shell import Shell
from . import fork, may_fork
from .fork import Outcome
from .process_memory import beside
from .work import Kind, Policy, Work, contained_work, preparation

if TYPE_CHECKING:
    from .replica.place import ReplicaPlace

T = TypeVar("T")

__all__ = ["Kind", "Outcome", "Policy", "Sandbox", "Work"]


class Sandbox:
    """Where the reruns for one report are made. A context manager: what it has started ends with it."""

    def __init__(self, shell: Shell, policy: Policy | None = None) -> None:
        self.shell, self.policy = shell, policy or Policy()
        self._refused: str | None = None  # what torch said to a copy
        self._replica: ReplicaPlace | None = None

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._replica is not None:
            self._replica.close()

    def closed(self) -> str | None:
        """None if there is a place to run in, else why there is none."""
        return self._no_fork if self.policy.sandbox == "fork" else None

    @cached_property
    def _no_fork(self) -> str | None:
        return may_fork.why_not()

    @property
    def is_copy(self) -> bool:
        """Whether work is done in a copy of the process."""
        if self.policy.sandbox == "auto":
            return self._refused is None and self._no_fork is None
        return self.policy.sandbox == "fork"

    @property
    def on_cpu(self) -> bool:
        """Whether what the session has on an accelerator was run on the CPU."""
        return self._replica is not None and self._replica.mapped

    def run(self, work: Work[T], limit_s: float, on_wait: Callable[[float], None] | None = None) -> Outcome[T]:
        """Does ``work`` where nothing of the session can change, and nothing outside of the process either.

        ``limit_s``: seconds after which it is ended. ``on_wait`` is called now and then with the seconds so far.
        Files that it writes are its own. An attempt to reach further outside (a process, a connection) is an error to it,
        and the outcome says which; unless the policy allows that. What is lost with its process is done once more.
        """
        return self._if_lost(self._once(work, limit_s, on_wait), work, limit_s, on_wait)

    def _if_lost(
        self, outcome: Outcome[T], work: Work[T], limit_s: float, on_wait: Callable[[float], None] | None
    ) -> Outcome[T]:
        """What an error ends in a copy is told in a value; else the machine had no memory left, or no room on a disk."""
        failed = outcome.failure is not None and not outcome.timed_out and kind_of(outcome.failure) != "interrupted"
        return self._once(work, limit_s, on_wait) if failed and self.is_copy else outcome

    def _once(self, work: Work[T], limit_s: float, on_wait: Callable[[float], None] | None) -> Outcome[T]:
        if not self.is_copy:
            return self._in_replica(work, limit_s, on_wait)
        outcome = _judged(fork.run(lambda: self._contained(work), limit_s, on_wait, self._preparation))
        return self._in_replica(work, limit_s, on_wait) if self._is_refused(outcome) else outcome

    @contextlib.contextmanager
    def ahead(self, work: Work[T], limit_s: float, gives_way: bool = True) -> Iterator[Callable[[], Outcome[T]] | None]:
        """Begins ``work`` on another core; gives what to call for the outcome, or None where there is no room for that.

        ``gives_way``: it may turn out not to be wanted, so what is waited for goes first where cores are few.
        """
        with contextlib.ExitStack() as stack:
            begun = self._begun(stack, work, limit_s, None, waited_for=False, gives_way=gives_way)

            def outcome() -> Outcome[T]:
                assert begun is not None
                return self._if_lost(begun(), work, limit_s, None)

            yield outcome if begun is not None else None

    @contextlib.contextmanager
    def telling(
        self, work: Work[T], limit_s: float, on_wait: Callable[[float], None] | None = None
    ) -> Iterator[Callable[[], Outcome[T]]]:
        """``run`` for work that can tell something before it is over, and then continues on another core meanwhile.

        Gives what to call for the outcome, and again while there is ``more``, or, after a KeyboardInterrupt, for what was
        known by then. Where there is no room for more than one run, the work gets None for what it would tell by.
        """
        with contextlib.ExitStack() as stack:
            begun = self._begun(stack, work, limit_s, on_wait, waited_for=True)

            def outcome() -> Outcome[T]:
                answer = begun() if begun is not None else self._once(work, limit_s, on_wait)
                answer = self._if_lost(answer, work, limit_s, on_wait)
                moved = self._is_refused(answer) or (self._replica is not None and self._replica.out_of_memory(answer))
                return self._in_replica(work, limit_s, on_wait) if moved else answer

            yield outcome

    def _begun(
        self,
        stack: contextlib.ExitStack,
        work: Work[T],
        limit_s: float,
        on_wait: Callable[[float], None] | None,
        waited_for: bool,
        gives_way: bool = False,
    ) -> Callable[[], Outcome[T]] | None:
        room = _cores() >= 2 and beside()
        if not room and not waited_for:
            return None
        if not self.is_copy:
            return self._begun_in_replica(stack, work, limit_s, on_wait, waited_for, room)

        def begun(tell: Callable[[Any], None]) -> Any:
            if not room:
                return self._contained(work)
            if waited_for:
                return self._contained(work, lambda value: tell((value, None)))
            if gives_way:
                fork.give_way()
            return self._contained(work)

        try:
            outcome = stack.enter_context(fork.ahead(begun, limit_s, on_wait, self._preparation))
        except OSError:
            return None
        return lambda: _judged(outcome())

    def _contained(self, work: Work[T], tell: Callable[[T], None] | None = None) -> tuple[T, str | None]:
        return contained_work(work, self.shell, tell, self.policy.allow_side_effects)

    @property
    def _preparation(self) -> fork.Preparation | None:
        return preparation(self.policy.allow_side_effects)

    # ---- the replica

    def _is_refused(self, outcome: Outcome[Any]) -> bool:
        """Whether torch refused a copy its backward, which is then a matter for a replica, from now on."""
        said = outcome.failure or getattr(outcome.value, "error", None) or ""
        if not self.is_copy or self.policy.sandbox == "fork" or not may_fork.is_refusal(said):
            return False
        self._refused = said
        return True

    def _in_replica(self, work: Work[T], limit_s: float, on_wait: Callable[[float], None] | None) -> Outcome[T]:
        with contextlib.ExitStack() as stack:
            try:
                task = self._place.begin(work, limit_s, on_wait)
            except (OSError, EOFError, TimeoutError) as error:
                return Outcome(failure=message("no_replica", problem=str(error) or type(error).__name__))
            stack.callback(task.end)
            outcome = _judged(task.outcome(on_wait))
        return self._in_replica(work, limit_s, on_wait) if self._place.out_of_memory(outcome) else outcome

    def _begun_in_replica(
        self,
        stack: contextlib.ExitStack,
        work: Work[T],
        limit_s: float,
        on_wait: Callable[[float], None] | None,
        waited_for: bool,
        room: bool,
    ) -> Callable[[], Outcome[T]] | None:
        try:
            task = self._place.begin(work, limit_s, on_wait, aside=not waited_for, tells=waited_for and room)
        except (OSError, EOFError, TimeoutError):
            return None
        stack.callback(task.end)
        return lambda: _judged(task.outcome(on_wait))

    @property
    def _place(self) -> ReplicaPlace:
        if self._replica is None:
            from .replica.place import ReplicaPlace

            self._replica = ReplicaPlace(self.shell, self.policy)
        return self._replica


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _judged(outcome: Outcome[Any]) -> Outcome[Any]:
    if outcome.failure is not None or outcome.value is None:
        return outcome
    value, refused = outcome.value
    return Outcome(value=value, more=outcome.more, refused=refused, timed_out=outcome.timed_out)
