"""What the command line asked for, with the status it ends with."""

from __future__ import annotations

from dataclasses import dataclass

HEALTHY, FINDING, FAILED = 0, 1, 2


class BadUseError(Exception):
    """What is wrong with the command line or with a target: a message of one line."""


@dataclass(frozen=True)
class Settings:
    """What was asked for. ``cells`` are the cells of a notebook that --check watches, by number; all if None.

    ``module``: the target is a module's name, as after Python's own -m.
    """

    check: bool = False
    fix: bool = False
    json: bool = False
    limit: float = 60.0
    effects: bool = False
    cells: frozenset[int] | None = None
    language: str = "auto"
    module: bool = False
