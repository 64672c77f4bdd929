"""What of a session is no object of the user's: random numbers, torch's switches, the import path, warnings."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch

from ... import torch_private
from ..may_fork import accelerator


@dataclass(frozen=True)
class Surroundings:
    """The state of an interpreter that a cell can tell from another, as plain values.

    ``warnings`` are filters, each pickled: to read one imports the module of its category, which a rerun may only do once
    its files are its own.
    """

    folder: str | None  # None: it has been deleted
    temporary: str  # the folder for temporary files
    path: tuple[str, ...]
    arguments: tuple[str, ...]
    random: Any
    torch_random: bytes
    numpy_random: Any
    device_random: bytes | None
    default_device: str | None
    default_dtype: torch.dtype
    switches: tuple[tuple[str, Any], ...]
    warnings: tuple[bytes, ...]
    recursion: int


# (to read, to set), of torch; a switch that a release does not know is passed over
_SWITCHES = (
    ("torch.is_grad_enabled", "torch.set_grad_enabled"),
    ("torch.is_anomaly_enabled", "torch.autograd.set_detect_anomaly"),
    ("torch.get_deterministic_debug_mode", "torch.set_deterministic_debug_mode"),
    ("torch.get_float32_matmul_precision", "torch.set_float32_matmul_precision"),
    ("torch.autograd.is_multithreading_enabled", "torch.autograd.set_multithreading_enabled"),
)
_FLAGS = (
    "torch.backends.cudnn.enabled",
    "torch.backends.cudnn.benchmark",
    "torch.backends.cudnn.deterministic",
    "torch.backends.mkldnn.enabled",
)


def surroundings() -> Surroundings:
    """Those of this interpreter. Draws no random number and starts no device."""
    numpy = sys.modules.get("numpy.random")
    return Surroundings(
        folder=current_folder(),
        temporary=tempfile.gettempdir(),
        path=tuple(entry for entry in sys.path if isinstance(entry, str)),
        arguments=tuple(sys.argv),
        random=random.getstate(),
        torch_random=bytes(torch.get_rng_state().tolist()),
        numpy_random=numpy.get_state() if numpy is not None else None,
        device_random=_device_random(),
        default_device=None if (chosen := torch_private.default_device()) is None else str(chosen),
        default_dtype=torch.get_default_dtype(),
        switches=tuple((setter, _at(getter)()) for getter, setter in _SWITCHES if _at(getter) is not None)
        + tuple((flag, _at(flag)) for flag in _FLAGS if _at(flag) is not None),
        warnings=tuple(_pickled(warnings.filters)),
        recursion=sys.getrecursionlimit(),
    )


def _pickled(filters: Iterable[object]) -> Iterator[bytes]:
    for one in filters:
        with contextlib.suppress(Exception):  # a category that a function has made
            yield pickle.dumps(one)


def _read(filters: Iterable[bytes]) -> Iterator[Any]:
    for one in filters:
        with contextlib.suppress(Exception):  # a category of a cell's, which has not run here
            yield pickle.loads(one)


def current_folder() -> str | None:
    """The folder that the process is in; None if it has been deleted."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def _device_random() -> bytes | None:
    kind = accelerator()
    module = getattr(torch, kind, None) if kind is not None else None
    if module is None or not getattr(module, "is_initialized", lambda: False)():
        return None
    try:
        return bytes(module.get_rng_state().cpu().tolist())
    except Exception:  # a backend may have no generator
        return None


def _at(dotted: str) -> Any:
    found: Any = torch
    for part in dotted.split(".")[1:]:
        found = getattr(found, part, None)
    return found


def _deleted(place: str) -> str:
    """A folder to be in that is gone: the path by which the kernel still knows it."""
    folder = tempfile.mkdtemp(dir=place)
    inside = os.open(folder, os.O_RDONLY)
    os.rmdir(folder)
    return f"/proc/self/fd/{inside}"


def take_on(theirs: Surroundings, device: str | None) -> None:
    """Makes this interpreter like that one, once its files are its own.

    ``device``: where tensors of its accelerator are to be; "cpu" or its own.
    """
    os.chdir(theirs.folder or _deleted(theirs.temporary))
    tempfile.tempdir = theirs.temporary
    sys.path[:] = theirs.path
    sys.argv[:] = theirs.arguments
    sys.setrecursionlimit(theirs.recursion)
    warnings.resetwarnings()
    cast(list[Any], warnings.filters).extend(_read(theirs.warnings))
    torch.set_default_dtype(theirs.default_dtype)
    for name, value in theirs.switches:
        if name in _FLAGS:
            setattr(_at(name.rpartition(".")[0]), name.rpartition(".")[2], value)
        else:
            _at(name)(value)
    if theirs.default_device is not None:
        torch.set_default_device("cpu" if device == "cpu" else theirs.default_device)
    set_random(theirs, device)


def set_random(theirs: Surroundings, device: str | None) -> None:
    """The generators of random numbers as they were."""
    random.setstate(theirs.random)
    torch.set_rng_state(_bytes(theirs.torch_random))
    if theirs.numpy_random is not None:
        import numpy.random

        numpy.random.set_state(theirs.numpy_random)
    kind = accelerator()
    if theirs.device_random is not None and device != "cpu" and kind is not None:
        getattr(torch, kind).set_rng_state(_bytes(theirs.device_random))


def _bytes(data: bytes) -> torch.Tensor:
    with torch.device("cpu"):
        return torch.frombuffer(bytearray(data), dtype=torch.uint8)
