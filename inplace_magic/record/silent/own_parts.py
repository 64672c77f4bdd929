"""Operations that overwrite what they have still to read: in ``x -= x[:, :1]`` the first column is zero by the time that the
others are to lose it.

torch refuses such a call where it sees that both lie in one memory, and does not look where one of them is no dense stretch
of it (``assert_no_partial_overlap``).

Proof: on copies the same call gives other values, and a backward goes through what it has written.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from ...storage import storage_key
from ...torch_private import sequence_number, unobserved
from ..author import Author, author_at
from ..observed import LiveWrite, Stack
from ..operations import SAMPLERS
from ..past_errors import reads_own_part
from .events import Call, Detector, Passing, Run
from .nodes import node_number
from .second_run import near

_LOOKS = 16  # at what one line writes


class OwnParts(Detector):
    """Makes calls that read parts of what they write on copies, in memory of their own and in one memory."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._looks: Counter[Stack] = Counter()
        self._wrong: dict[int, LiveWrite] = {}  # by the number of the node that what was written has behind the call

    def calls(self, call: Call) -> None:
        if not reads_own_part(call.func, call.args, call.kwargs, call.written) or call.name in SAMPLERS:
            return
        author = author_at(sys._getframe(1))
        self._looks[author.stack] += 1
        if self._looks[author.stack] > _LOOKS:
            return
        # What cannot be made on copies proves nothing.
        with unobserved(), torch.no_grad(), contextlib.suppress(Exception):
            if not near(_made(call, _apart(call)), _made(call, _together(call))):
                note = functools.partial(self._note, weakref.ref(call.written[0]), call.name, author)
                self.run.after_operation(note)

    def _note(self, target: weakref.ref[torch.Tensor], name: str, author: Author) -> None:
        if number := node_number(target()):
            write = LiveWrite(author.stack, self.run.tick(), name, author.origin, 0, "overlaps")
            self._wrong.setdefault(number, write)

    def backward_begins(self, passing: Passing) -> None:
        if not self._wrong:
            return
        for number in {sequence_number(node) for node in passing.nodes} & self._wrong.keys():
            self._note_proven(self._wrong.pop(number), passing.event)


def _made(call: Call, copy_of: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """What the call would make of its target if it were handed copies."""
    target = copy_of(call.written[0])

    def copied(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return target if value is call.written[0] else copy_of(value)
        return type(value)(map(copied, value)) if type(value) in (list, tuple) else value

    call.func(*map(copied, call.args), **{name: copied(value) for name, value in call.kwargs.items()})
    return target


def _apart(call: Call) -> Callable[[torch.Tensor], torch.Tensor]:
    """Each tensor gets memory of its own."""
    return lambda tensor: tensor.detach().clone()


def _together(call: Call) -> Callable[[torch.Tensor], torch.Tensor]:
    """What lies in the memory that is written lies in one memory again."""
    target = call.written[0].detach()
    size = target.untyped_storage().nbytes() // target.element_size()
    memory = target.as_strided((size,), (1,), 0).clone()

    def copy_of(tensor: torch.Tensor) -> torch.Tensor:
        if storage_key(tensor) != storage_key(target):
            return tensor.detach()
        return memory.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    return copy_of
