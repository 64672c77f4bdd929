"""Who makes a call: the user's own line, or torch's optimizer or module on its behalf."""

from __future__ import annotations

import types
from typing import Any, NamedTuple

import torch

from ..session.user_objects import names_in
from ..source.location import kind_of, user_stack
from .observed import Stack


class Author(NamedTuple):
    """The user's frames from the call outwards, who wrote (user, nn, optim), and the torch module that did."""

    stack: Stack
    origin: str
    module: Any


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
    while frame is not None and kind_of(frame.f_code.co_filename) != "user":
        frame = frame.f_back
    return tuple(name for name, value in names_in(frame) if value is tensor) if frame is not None else ()
