"""What is computed of gradients that ``autograd.grad`` gave as values alone, outside of any graph: a penalty that trains nothing.

Not what a network makes of them: an input that is moved along its gradient is meant to be a value.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from .operations import arguments, tensors_in


class GradientValues:
    """Follows these values from call to call. ``table`` is empty where there are none; ``passes`` went back from one."""

    def __init__(self) -> None:
        self.table: dict[int, weakref.ref[torch.Tensor]] = {}
        self.passes: set[int] = set()

    def add(self, found: Any) -> None:
        for tensor in tensors_in(found):
            key = id(tensor)
            self.table[key] = weakref.ref(tensor, lambda _, key=key: self.table.pop(key, None))  # type: ignore[misc]

    def holds(self, tensors: Iterable[torch.Tensor]) -> bool:
        return any((known := self.table.get(id(t))) is not None and known() is t for t in tensors)

    def follow(self, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """After a call: what it made of such values is one as well, unless a parameter took part in it."""
        given = arguments(args, kwargs)
        if self.holds(given) and not any(isinstance(tensor, torch.nn.Parameter) for tensor in given):
            self.add(result)
