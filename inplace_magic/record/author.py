"""Who makes a call: the user's own line, or torch's optimizer or module on its behalf."""

from __future__ import annotations

import collections
import types
from typing import Any, NamedTuple

import torch

from ..session.user_objects import has_own_attributes, names_in, steps
from ..source.location import kind_of, user_stack
from ..source.own import is_a
from ..storage import storage_key
from .observed import Stack

_LEVELS = 4  # from a name: `self.heads[0]["boxes"]`
_WIDTH = 64  # items looked at in one container
_MOST = 20_000  # values looked at on one level
_OPEN = (dict, list, tuple, collections.deque, torch.nn.Module)


class Author(NamedTuple):
    """The user's frames from the call outwards, who wrote (user, nn, optim), and the torch module that did.

    ``held``: the paths over the innermost frame's names to what is written. ``by_list``: many tensors in one call.
    """

    stack: Stack
    origin: str
    module: Any
    held: tuple[str, ...] = ()
    by_list: bool = False


def author_at(frame: types.FrameType | None) -> Author:
    """Who runs this frame."""
    origin, module = "user", None
    inner = frame
    while inner is not None and kind_of(inner.f_code.co_filename) != "user":
        kind = kind_of(inner.f_code.co_filename)
        if kind == "optim":
            origin = "optim"
        elif kind == "nn" and origin == "user":
            origin = "nn"
        if kind == "nn" and module is None and inner.f_code.co_name == "forward":
            module = inner.f_locals.get("self")
        inner = inner.f_back
    return Author(user_stack(inner), origin, module)


def names_of(tensor: torch.Tensor, frame: types.FrameType | None) -> tuple[str, ...]:
    """The names, in the user's code that runs this frame, that are bound to this very tensor."""
    return tuple(name for name, value in _names(frame) if value is tensor)


def held_at(tensor: torch.Tensor, frame: types.FrameType | None) -> tuple[str, ...]:
    """The paths over the names of that code to whatever shares the tensor's memory, all of them for each of its holders."""
    return tuple(path for path, _ in sharing_memory(tensor, frame))


def sharing_memory(tensor: torch.Tensor, frame: types.FrameType | None) -> list[tuple[str, torch.Tensor]]:
    """What they lead to, with it."""
    found: list[tuple[str, torch.Tensor]] = []
    key, level = storage_key(tensor), _names(frame)
    for _ in range(_LEVELS if key is not None else 0):
        following: list[tuple[str, Any]] = []
        for path, value in level[:_MOST]:
            if is_a(value, torch.Tensor):
                found += [(path, value)] if storage_key(value) == key else []
            elif is_a(value, _OPEN) or has_own_attributes(value):
                module = is_a(value, torch.nn.Module)  # comes with all that its parts hold
                inner = ((p, v) for p, v in steps(path, value, _WIDTH) if not (module and is_a(v, torch.nn.Module)))
                following += [(p, v) for p, v in inner if p is not None]
        level = following
    return found


def _names(frame: types.FrameType | None) -> list[tuple[str, Any]]:
    while frame is not None and kind_of(frame.f_code.co_filename) != "user":
        frame = frame.f_back
    return list(names_in(frame)) if frame is not None else []
