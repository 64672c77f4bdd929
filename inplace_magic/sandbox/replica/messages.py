"""What a session says to its replica, or hears from it: frozen records, pickled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...session.shell import Shell
from .pickling import Parcel
from .surroundings import Surroundings


@dataclass(frozen=True)
class Setting:
    """Said once, first. ``shell`` makes the replica's shell; ``modules`` are the libraries that the session has,
    ``devices`` the kinds that it uses."""

    surroundings: Surroundings
    shell: Callable[[], Shell]
    modules: tuple[str, ...]
    may_fork: bool
    devices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Delivery:
    """Objects of the session, for the jobs that name this number."""

    number: int
    parcel: Parcel


@dataclass(frozen=True)
class Job:
    """Work to be done, pickled.

    ``device``: where tensors of the session's accelerator are to be, its own kind or "cpu"; None if it has none.
    ``aside``: it is not waited for yet. ``tells``: what it tells before its end is heard.
    """

    number: int
    work: bytes
    parcel: int | None
    limit_s: float
    allow_side_effects: bool
    device: str | None
    aside: bool
    tells: bool


@dataclass(frozen=True)
class Enough:
    """The time of a job is over: it is to answer what it knows."""

    number: int


@dataclass(frozen=True)
class End:
    """A job is to be ended, whatever it is doing."""

    number: int
