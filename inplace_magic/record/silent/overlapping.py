"""A write into windows that share memory: an element of several windows is changed once for each of them.

``windows = x.unfold(0, 4, 1)``, then ``windows -= windows.mean(-1, keepdim=True)``. Torch refuses such a write where an
element is expanded, and makes it where windows overlap.

Proof: the same call on a copy of the windows gives other values, the same ones each time.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...torch_private import unobserved
from ..author import Author, author_at
from ..observed import LiveWrite, Saved, Stack, differ
from .events import Call, Detector, Passing, Run

_LOOKS = 16


class Overlapping(Detector):
    """Follows writes into tensors of which elements share memory."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._seen: set[Stack] = set()
        self._wrong: list[tuple[Author, str, int]] = []

    def calls(self, call: Call) -> None:
        tensors = self.run.written(call)
        if len(tensors) != 1 or len(self._seen) >= _LOOKS:
            return
        with unobserved():
            if not _may_overlap(tensors[0]):
                return
            author = author_at(sys._getframe(1))
            if author.stack in self._seen:
                return
            self._seen.add(author.stack)
            right = _on_copy(call.func, call.args, call.kwargs, tensors[0])
        if right is not None:
            look = functools.partial(self._look, weakref.ref(tensors[0]), right, (author, call.name, self.run.tick()))
            self.run.after_operation(look)

    def _look(self, written: weakref.ref[torch.Tensor], right: torch.Tensor, write: tuple[Author, str, int]) -> None:
        tensor = written()
        with unobserved():
            if tensor is not None and tensor.requires_grad and differ(right, tensor.detach()):
                self._wrong.append(write)

    def backward_begins(self, passing: Passing) -> None:
        for author, operation, clock in self._wrong:
            write = LiveWrite(author.stack, clock, operation, author.origin, 0)
            write.how = "overlapping"
            conflict = self.run.conflict("silent", Saved(torch.zeros(1), (), clock), passing.event, write)
            if conflict is not None:
                conflict.certain = True
                conflict.value = None
        self._wrong.clear()


def _may_overlap(tensor: Any) -> bool:
    """Whether two elements may be at one place, by sizes and strides. An expanded one torch refuses by itself."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided or tensor.is_nested:
        return False
    reach = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.size())):
        if size > 1:
            if stride == 0:
                return False
            if stride <= reach:
                return True
            reach += stride * (size - 1)
    return False


def _on_copy(
    func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], tensor: torch.Tensor
) -> torch.Tensor | None:
    """What a call would make of a copy of what it writes; None where it does not give the same twice."""
    copies = [tensor.detach().clone(), tensor.detach().clone()]
    for copy in copies:
        try:
            with torch.no_grad(), torch.random.fork_rng():
                func(*(copy if one is tensor else one for one in args), **kwargs)
        except Exception:
            return None
    return None if differ(*copies) else copies[0]
