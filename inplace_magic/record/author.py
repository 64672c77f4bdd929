"""Who makes a call: the user's own line, or torch's optimizer or module on its behalf."""

from __future__ import annotations

import types
from typing import Any, NamedTuple

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
