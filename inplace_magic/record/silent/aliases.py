"""Calls that give other access to a tensor's memory, or other memory to a tensor."""

from __future__ import annotations

import sys
import types
from typing import Any

import torch

from ...source.location import kind_of
from ..operations import plain_name

EXPORTS = frozenset({"numpy", "__array__", "__dlpack__", "untyped_storage", "storage", "resize_", "resize_as_"})
DATA_GET = torch.Tensor.data.__get__  # type: ignore[attr-defined]
DATA_SET = torch.Tensor.data.__set__  # type: ignore[attr-defined]
NUMBERS = (torch.Tensor.item, torch.Tensor.__float__)  # functions that read a value as a number
GRAD_GET = torch.Tensor.grad.__get__  # type: ignore[union-attr]
GRAD_SET = torch.Tensor.grad.__set__  # type: ignore[union-attr]
_HANDLER = torch.overrides.handle_torch_function.__code__
_OURS = __name__.partition(".")[0] + "."


def shares(func: Any) -> bool:
    """Whether a call of ``func`` is one of these."""
    return plain_name(func) in EXPORTS or plain_name(func) == "detach" or func in (DATA_GET, DATA_SET, GRAD_SET)


def caller() -> types.FrameType | None:
    """The frame that has made the call which is being looked at."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and (
        frame.f_code is _HANDLER
        or (frame.f_globals.get("__name__", "").startswith(_OURS) and kind_of(frame.f_code.co_filename) != "user")
    ):
        frame = frame.f_back
    return frame


def called_by_user() -> bool:
    """Whether that was the user's own code, and not torch's."""
    frame = caller()
    return frame is not None and kind_of(frame.f_code.co_filename) == "user"
