"""The blocks without grad mode that are open: what they compute loses its history there."""

from __future__ import annotations

import sys
import threading
from typing import Any

import torch

from ...source.location import kind_of, user_stack
from ..observed import Stack
from .events import Detector, Run


class GradModes(Detector):
    """Notes where ``with torch.no_grad()`` begins and ends, in the thread that is watched."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._open: list[tuple[int, Stack]] = []  # the mode's id, and its place; none for what is not the user's

    @property
    def block(self) -> Stack:
        """The user's innermost block, where grad mode is off."""
        return (
            next(filter(None, (place for _, place in reversed(self._open))), ()) if not torch.is_grad_enabled() else ()
        )

    def begins(self) -> None:
        enter, leave, thread = torch.no_grad.__enter__, torch.no_grad.__exit__, threading.get_ident()

        def entering(mode: Any) -> None:
            with self.run.ours:
                if threading.get_ident() == thread:
                    frame = sys._getframe(1)
                    users = kind_of(frame.f_code.co_filename) == "user"
                    self._open.append((id(mode), user_stack(frame) if users else ()))
            enter(mode)

        def leaving(mode: Any, *error: Any) -> None:
            leave(mode, *error)
            with self.run.ours:
                if threading.get_ident() == thread:
                    entered = [one for one in self._open if one[0] == id(mode)]
                    for one in entered[-1:]:
                        self._open.remove(one)

        self.run.put(torch.no_grad, "__enter__", entering)
        self.run.put(torch.no_grad, "__exit__", leaving)
