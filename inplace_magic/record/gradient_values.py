"""What is computed of gradients that ``autograd.grad`` gave as values alone, outside of any graph: a penalty that trains nothing.

Not what a network makes of them: an input that is moved along its gradient is meant to be a value. Nor a loss that is weighed
by their size.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from .operations import arguments, plain_name, tensors_in

_CUTS = ("detach", "detach_", "sign")
_DATA = torch.Tensor.data.__get__  # type: ignore[attr-defined]
_WEIGHS = ("mul", "div", "multiply")


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

    def follow(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """After a call: what it made of such values is one as well, unless it is cut off, or a parameter took part in it."""
        given = arguments(args, kwargs)
        if not self.holds(given) or not torch.is_grad_enabled() or plain_name(func) in _CUTS or func == _DATA:
            return
        if any(isinstance(tensor, torch.nn.Parameter) and tensor.numel() > 1 for tensor in given):
            return
        held = [tensor for tensor in given if self.holds([tensor])]
        weighed = plain_name(func) in _WEIGHS and any(t.requires_grad for t in given if not self.holds([t]))
        # What has come to be a part of a loss, or has a shape, is no weight of one.
        if not weighed or any(tensor.ndim > 1 or tensor.requires_grad for tensor in held):
            self.add([one for one in tensors_in(result) if one.is_floating_point()])
