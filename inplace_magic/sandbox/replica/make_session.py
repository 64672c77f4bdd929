"""In a copy of a replica's interpreter: the session is made again, then the work is done in it."""

from __future__ import annotations

import contextlib
import mmap
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ... import torch_private
from ...session.shell import Shell
from .. import process_memory
from ..may_fork import accelerator
from ..work import contained_work
from .absent import NotTaken
from .messages import Job, Setting
from .on_cpu import on_cpu
from .pickling import Parcel, receive, unpack
from .surroundings import set_random, take_on

_COPIED = 2**16  # bytes: a storage up to this size is copied, so that it can be resized as any other


def do(
    job: Job,
    setting: Setting,
    shell: Shell,
    parcel: Parcel | None,
    memory: mmap.mmap | None,
    tell: Callable[[Any], None] | None,
) -> Any:
    """What the work returns, as ``contained_work`` gives it.

    Raises NotTaken if it needed what stayed in the session, and whatever else the work raises.
    """

    def work(shell: Shell, tell: Callable[[Any], None] | None) -> Any:
        receive(shell)
        take_on(setting.surroundings, job.device)
        if parcel is not None:
            unpack(parcel, _storages(parcel, memory, job.device))
        set_random(setting.surroundings, job.device)  # unpickling and importing may have drawn from it
        return pickle.loads(job.work)(shell, tell)

    heard = (lambda value: tell((value, None))) if tell is not None and job.tells else None
    with _mapped(job.device):
        return contained_work(work, shell, heard, job.allow_side_effects)


@contextlib.contextmanager
def _mapped(device: str | None) -> Iterator[None]:
    kind = accelerator() if device == "cpu" else None
    if kind is None:
        yield
        return
    with on_cpu(kind):
        yield


def _storages(parcel: Parcel, memory: mmap.mmap | None, device: str | None) -> list[torch.UntypedStorage]:
    found = []
    mapped = 0
    for key, extent in parcel.storages:
        if extent is None or memory is None:
            raise NotTaken(f"a tensor on the device {key.device}")
        place = "cpu" if device == "cpu" else str(torch.device(key.device))
        found.append(_storage(memory, extent.start, extent.size, place))
        mapped += extent.size if place == "cpu" else 0
    process_memory.bring(mapped)
    return found


def _storage(memory: mmap.mmap, start: int, size: int, device: str) -> torch.UntypedStorage:
    with torch_private.unobserved(), torch.no_grad():
        if not size:
            return torch.empty(0, dtype=torch.uint8, device=device).untyped_storage()
        there = torch.frombuffer(memory, dtype=torch.uint8, count=size, offset=start)
        if device != "cpu":
            return there.to(device).untyped_storage()
        return (there.clone() if size <= _COPIED else there).untyped_storage()
