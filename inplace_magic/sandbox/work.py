"""What is done in a sandbox: where it may be done, how it is kept from reaching outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from ..session.run_cell import Touched
from ..session.shell import Shell
from . import fork
from .side_effects import contained, look_around, make_private

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Kind = Literal["auto", "fork", "replica"]


class Work(Protocol[T_co]):
    """Something to do in a session that is given up afterwards: a frozen record that can be pickled."""

    def __call__(self, shell: Shell, tell: Callable[[Any], None] | None = None) -> T_co:
        """Does it. ``tell`` is for what is known before the end; None where nobody would hear it."""
        ...

    def touched(self, shell: Shell) -> Touched:
        """What of the session it can get at."""
        ...


@dataclass(frozen=True)
class Policy:
    """Where work may be done. ``allow_side_effects``: it may reach outside, as the cell did."""

    sandbox: Kind = "auto"
    allow_side_effects: bool = False


def contained_work(
    work: Callable[[Any, Callable[[Any], None] | None], T],
    shell: Shell,
    tell: Callable[[Any], None] | None,
    allow_side_effects: bool,
) -> tuple[T, str | None]:
    """What the work returns, and the first effect that was refused. To be called in a process that is given up."""
    if allow_side_effects:
        return work(shell, tell), None
    with contained() as attempts:
        value = work(shell, tell)
    return value, attempts.first


def preparation(allow_side_effects: bool) -> fork.Preparation | None:
    """What a new process is to call first, so that the files it writes are its own. To be asked for right before it is made."""
    if allow_side_effects:
        return None
    look_around()
    return make_private
