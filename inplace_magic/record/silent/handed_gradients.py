"""Gradients that backward hands to the user's code, and that this code writes into.

Autograd hands one and the same tensor to all operands of a sum, so that a hook which scales what it is given in place
scales the gradient of others, too; and so does the backward of a custom Function. (The documentation of
``Tensor.register_hook`` and of ``torch.autograd.Function`` forbids it; nothing checks it.)
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterator, Sequence

import torch

from ...source.location import kind_of
from ...torch_private import ENGINE_CODE, FUNCTION_BACKWARD_CODE
from ..operations import tensors_in
from ..tracked_copies import storage_key


def handed(frame: types.FrameType | None, written: Sequence[torch.Tensor]) -> tuple[torch.Tensor, bool] | None:
    """The gradient in which ``written`` lies, of those that the callback around ``frame`` was handed.

    With it whether that callback is the backward of a Function, and no hook that runs ahead of one. None if there is no
    such gradient.
    """
    if not written:
        return None
    callback: list[types.FrameType] = []
    while frame is not None and frame.f_code is not ENGINE_CODE:
        callback.append(frame)
        frame = frame.f_back
    if not callback:
        return None
    top = callback[-1]
    own = top.f_code is FUNCTION_BACKWARD_CODE
    if own and (len(callback) < 2 or kind_of(callback[-2].f_code.co_filename) != "user"):
        return None  # one of torch's own, checkpoint for one
    if not own and kind_of(top.f_code.co_filename) != "user":
        return None
    keys = {storage_key(t) for t in written}
    for value in top.f_locals.get("args", ()) if own else _arguments(top):
        for tensor in tensors_in(value):
            if storage_key(tensor) in keys and not (tensor.is_leaf and tensor.requires_grad):
                return tensor, own
    return None


def _arguments(frame: types.FrameType) -> Iterator[object]:
    """What a function was called with, as far as its names still stand for that."""
    code = frame.f_code
    stores = _stores(code)
    for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        if all(offset > frame.f_lasti for offset in stores.get(name, ())):
            yield frame.f_locals.get(name)


@functools.lru_cache(maxsize=256)
def _stores(code: types.CodeType) -> dict[str, list[int]]:
    """Where a function's names are bound anew. ``g *= 2`` leaves the tensor what it was."""
    found: dict[str, list[int]] = {}
    before = ""
    for one in dis.get_instructions(code):
        if one.opname.startswith("STORE_") and isinstance(one.argval, (str, tuple)) and not before.endswith("="):
            for name in one.argval if isinstance(one.argval, tuple) else (one.argval,):
                found.setdefault(name, []).append(one.offset)
        before = one.argrepr if one.opname == "BINARY_OP" else ""
    return found
