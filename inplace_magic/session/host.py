"""What the acts on a session ask of the extension that is loaded into it, so that they need not know who loads them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..options import Options
from .history import Session
from .next_prompt import NextPrompt
from .shell import IPythonShell

if TYPE_CHECKING:  # loading the extension imports no torch
    from ..diagnosis import Diagnosis
    from ..record.evidence import Evidence


@dataclass
class Accepted:
    """A fix that was accepted, and the steps that take it back. ``what`` names what it changed, ``cells``: some cells."""

    diagnosis: str
    number: int
    what: tuple[str, ...]
    cells: bool
    undo: list[Callable[[], None]]
    ran: bool = False  # by the same command


class Watched(Protocol):
    """A run that was watched: what was seen of it, once it is over."""

    @property
    def evidence(self) -> Evidence | None: ...


class Host(Protocol):
    """One shell's extension.

    ``last`` is the latest diagnosis, ``known`` the latest twenty by id; ``accepted`` are the fixes in force, the latest
    last; ``watched`` is what was seen in a watched cell that raised.
    """

    shell: IPythonShell
    session: Session
    prompt: NextPrompt
    last: Diagnosis | None
    known: dict[str, Diagnosis]
    accepted: list[Accepted]
    watched: Watched | None

    def options(self) -> Options: ...
    def running_cell(self) -> int | None: ...
    def remember(self, found: Diagnosis) -> None: ...
    def show(self, found: Diagnosis, *, whole: bool = False, number: int | None = None) -> None: ...
    def said(self, text: str) -> str: ...
    def one_line_if_it_fails(self) -> AbstractContextManager[None]: ...
