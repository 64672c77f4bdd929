"""How things are noted and put back that are asked for their state: arrays, generators, files, iterators."""

from __future__ import annotations

import io
import random
import sys
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .walk import Walk


def package_of(kind: type) -> str:
    return str(getattr(kind, "__module__", "")).partition(".")[0]


def has_base(kind: type, package: str, name: str) -> bool:
    return any(base.__name__ == name and package_of(base) == package for base in kind.__mro__)


def visit_array(walk: Walk, obj: Any) -> None:
    walk.note(_restore_layout, obj, obj.flags.writeable, obj.dtype, obj.shape, obj.strides)
    if obj.base is not None:
        walk.follow((obj.base,))
    if not obj.flags.writeable or has_base(type(obj.base), "numpy", "ndarray"):
        return
    if type(obj).__name__ == "memmap":
        walk.decline("is mapped to a file and can be written")
    elif walk.has_room(obj.nbytes):
        walk.note(_restore_array, obj, obj.copy(order="K"))
        if obj.dtype.hasobject:
            walk.follow(obj.ravel().tolist())


def _restore_layout(obj: Any, writeable: bool, *layout: Any) -> None:
    if obj.flags.writeable != writeable:
        obj.flags.writeable = writeable
    for name, value in zip(("dtype", "shape", "strides"), layout):
        if getattr(obj, name) != value:
            setattr(obj, name, value)


def _restore_array(obj: Any, saved: Any) -> None:
    obj[...] = saved


def visit_numpy_generator(walk: Walk, obj: Any) -> None:
    bits = obj.bit_generator if hasattr(obj, "bit_generator") else obj._bit_generator
    walk.note(setattr, bits, "state", bits.state)


def visit_random(walk: Walk, obj: random.Random) -> None:
    if not isinstance(obj, random.SystemRandom):  # which has none
        walk.note(obj.setstate, obj.getstate())


def visit_torch_generator(walk: Walk, obj: torch.Generator) -> None:
    walk.note(obj.set_state, obj.get_state())


def visit_tensor(walk: Walk, obj: torch.Tensor) -> None:
    walk.follow(walk.tensors.learn(obj))


def visit_storage(walk: Walk, obj: Any) -> None:
    tensor = torch.empty(0, dtype=torch.uint8, device=obj.device)
    tensor.set_(obj if isinstance(obj, torch.UntypedStorage) else obj.untyped())
    walk.follow((tensor,))


def visit_file(walk: Walk, obj: Any) -> None:
    if obj.closed:
        return
    if isinstance(obj, io.StringIO | io.BytesIO):
        contents = obj.getvalue()
        if walk.has_room(len(contents)):
            walk.note(_restore_buffer, obj, contents, obj.tell())
        return
    if any(obj is s for s in (sys.stdout, sys.stderr, sys.stdin, sys.__stdout__, sys.__stderr__, sys.__stdin__)):
        return
    if obj.writable():
        walk.decline(f"is the file {str(getattr(obj, 'name', '?'))!r}, open to be written")
    elif not obj.seekable():
        walk.decline("is a stream that cannot be read twice")
    else:
        visit_position(walk, obj)


def visit_position(walk: Walk, obj: Any) -> None:
    try:
        position = obj.tell()
    except OSError:  # in the middle of an iteration over its lines
        walk.decline("is a file in the middle of being read")
    else:
        walk.note(obj.seek, position)


def _restore_buffer(obj: Any, contents: Any, position: int) -> None:
    if obj.getvalue() != contents:
        obj.seek(0)
        obj.truncate()
        obj.write(contents)
    obj.seek(position)


def visit_generator(walk: Walk, obj: Any) -> None:
    frame = next((getattr(obj, a) for a in ("gi_frame", "cr_frame", "ag_frame") if hasattr(obj, a)), None)
    if frame is not None:
        walk.decline(f"leads to the generator {obj.__name__!r}, which would be used up")


def visit_iterator(walk: Walk, obj: Any) -> None:
    """An iterator at its end has nothing to lose; any other may let go of its source, which no state brings back."""
    hint = getattr(obj, "__length_hint__", None)
    if hint is None or hint() != 0:
        walk.decline(f"leads to a {type(obj).__name__}, which would be used up")
