"""Attributes of ``ctx`` that a backward has bound to something else: where the graph is used again, it reads that.

``ctx.slope = ctx.slope * g`` writes into nobody's memory, and the second backward of the same node is wrong all the same.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..observed import LiveWrite, Saved, Stack, differ
from .events import Run


@dataclass(frozen=True)
class Rebound:
    """An attribute that is not what it was when the Function was applied. ``right`` is its value then."""

    name: str
    saved: Saved
    now: torch.Tensor
    right: torch.Tensor


def attributes(node: Any, kept: Iterable[Saved]) -> dict[str, Saved]:
    """The attributes that are themselves tensors which are kept."""
    found = [(saved.origin() if saved.origin is not None else None, saved) for saved in kept]
    return {
        name: saved
        for name, value in vars(node).items()
        if isinstance(value, torch.Tensor)
        for tensor, saved in found
        if tensor is value
    }


def rebound(node: Any, bound: Mapping[str, Saved]) -> Iterator[Rebound]:
    """Those that have another value by now, and are other tensors. What is gone is of no concern: it cannot be read."""
    for name, saved in bound.items():
        now = vars(node).get(name)
        if not isinstance(now, torch.Tensor) or saved.lost or (saved.origin is not None and saved.origin() is now):
            continue
        right = saved.alias if saved.value is None else saved.value
        if differ(right, now.detach()):
            yield Rebound(name, saved, now, right)


def binding(run: Run, functions: Iterable[types.FunctionType], name: str) -> LiveWrite:
    """The first line of a backward that binds an attribute of this name."""
    stack: Stack = next(
        (
            ((function.__code__, one.offset),)
            for function in functions
            for one in dis.get_instructions(function.__code__)
            if one.opname == "STORE_ATTR" and one.argval == name
        ),
        (),
    )
    return LiveWrite(stack, run.tick(), "", "user", 0)
