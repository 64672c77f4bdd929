"""The replicas of one report: started when work first needs one, given the objects that work reads, ended with it."""

from __future__ import annotations

import contextlib
import gc
import io
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import torch

from ... import torch_private
from ...session.shell import Shell
from .. import fork
from ..fork import Outcome
from ..may_fork import accelerator, devices_in_use
from ..side_effects import make_private
from ..work import Policy, Work, contained_work
from . import Replica, Task
from . import messages as m
from .carrier import Carrier, Extent
from .needs import names_read
from .pickling import Parcel, Pickler, pickled
from .shells import libraries, maker
from .surroundings import surroundings
from .tensors import StorageKey, bytes_of

T = TypeVar("T")
_PICKLING_S = 30.0
_CONTEXT = 2**29  # bytes that a process needs on a device before its first tensor
_OUT_OF_MEMORY = ("OutOfMemoryError", "out of memory")


class ReplicaPlace:
    """Where work is done that no copy of the session can do. ``close`` ends all that it has started."""

    def __init__(self, shell: Shell, policy: Policy) -> None:
        self._shell, self._policy = shell, policy
        self._numbers = itertools.count(1)
        self._replicas: list[Replica] = []
        self._delivered: dict[tuple[Replica, tuple[str, ...]], int | None] = {}
        self._setting: m.Setting | None = None
        self._accelerator = accelerator()
        self.device = "cpu" if self._accelerator is not None and not _has_room(self._accelerator) else self._accelerator

    def start(self, work: Work[Any]) -> None:
        """Starts an interpreter, if none is there that has room, and does not wait for it. Raises OSError."""
        if self._setting is None:
            factory = maker(self._shell)
            modules = (*libraries(self._shell.user_ns, self._accelerator), type(work).__module__)
            linux = sys.platform == "linux"
            self._setting = m.Setting(surroundings(), factory, modules, linux, devices_in_use())
        if not any(not replica.full for replica in self._replicas):
            self._replicas.append(Replica(self._setting))

    def begin(
        self,
        work: Work[T],
        limit_s: float,
        on_wait: Callable[[float], None] | None = None,
        aside: bool = False,
        tells: bool = False,
    ) -> Task[T]:
        """Begins work in a replica. Raises OSError, EOFError or TimeoutError where none can be had."""
        self.start(work)
        replica = next(one for one in self._replicas if not one.full)
        touched = work.touched(self._shell)
        names = () if touched.gone else names_read(touched.code, self._shell.user_ns)
        request = self._request(work)
        parcel = self._deliver(replica, names)
        replica.ready(on_wait)
        job = m.Job(
            next(self._numbers), request, parcel, limit_s, self._policy.allow_side_effects, self.device, aside, tells
        )
        return Task(replica, job)

    @property
    def mapped(self) -> bool:
        """Whether what the session has on its device is on the CPU here."""
        return self.device == "cpu"

    def out_of_memory(self, outcome: Outcome[Any]) -> bool:
        """Whether the device had no room for the work, which is then done on the CPU, from now on."""
        said = f"{outcome.failure or ''} {getattr(outcome.value, 'error', None) or ''}"
        if self.device in (None, "cpu") or not any(sign in said for sign in _OUT_OF_MEMORY):
            return False
        self.device = "cpu"
        return True

    def close(self) -> None:
        for replica in self._replicas:
            replica.close()
        self._replicas.clear()
        self._delivered.clear()

    def _request(self, work: Work[Any]) -> bytes:
        file = io.BytesIO()
        Pickler(file, self._shell).dump(work)
        return file.getvalue()

    def _deliver(self, replica: Replica, names: tuple[str, ...]) -> int | None:
        """The number under which the replica has the objects of these names."""
        if not names:
            return None
        if (replica, names) not in self._delivered:
            number = next(self._numbers)
            replica.deliver(m.Delivery(number, self._parcel(replica.carrier, names)))
            self._delivered[replica, names] = number
        return self._delivered[replica, names]

    def _parcel(self, carrier: Carrier, names: tuple[str, ...]) -> Parcel:
        """Made in a copy of the process, where there are copies: it runs ``__getstate__`` and its like."""
        if not hasattr(os, "fork") or sys.platform != "linux":
            return _with_devices(pickled(self._shell, names, carrier, carefully=True), carrier)
        fork.kept_open.add(carrier.descriptor)
        try:
            outcome = fork.run(lambda: _contained_pickle(self._shell, names, carrier), _PICKLING_S, None, make_private)
        finally:
            fork.kept_open.discard(carrier.descriptor)
        if outcome.value is None:
            raise OSError(f"the session's objects could not be taken along ({outcome.failure})")
        carrier.follow()
        return _with_devices(outcome.value, carrier)


def _contained_pickle(shell: Shell, names: tuple[str, ...], carrier: Carrier) -> Parcel:
    parcel, _ = contained_work(lambda shell, tell: pickled(shell, names, carrier), shell, None, False)
    return parcel


def _has_room(kind: str) -> bool:
    """Whether a second process may take as much of the device as the session took at its peak; asks, and takes nothing."""
    module = getattr(torch, kind, None)
    if not getattr(module, "is_initialized", lambda: False)():
        return True  # the session has nothing there
    try:
        free, _ = module.mem_get_info()  # type: ignore[union-attr]
        return bool(free > module.max_memory_allocated() + _CONTEXT)  # type: ignore[union-attr]
    except (AttributeError, RuntimeError):
        return True  # it does not tell; the work will


# ---- what lies on a device -------------------------------------------------------------------------------------------


def _with_devices(parcel: Parcel, carrier: Carrier) -> Parcel:
    """A device cannot be read from a copy of the process; it is read here, and not changed."""
    wanted = {key.identity: key for key in parcel.on_device}
    if not wanted:
        return parcel
    found: dict[StorageKey, Extent] = {}
    with torch_private.unobserved(), torch.no_grad():
        for storage in _storages_on_devices():
            key = wanted.pop(torch_private.storage_id(storage), None)
            if key is not None:
                found[key] = carrier.append(bytes_of(storage.cpu()))
            if not wanted:
                break
    storages = tuple((key, extent or found.get(key)) for key, extent in parcel.storages)
    return replace(parcel, storages=storages)


def _storages_on_devices() -> Iterator[torch.UntypedStorage]:
    for value in gc.get_objects():
        if not issubclass(type(value), torch.Tensor):  # by its real type: proxies run code
            continue
        gradient = value.grad if value.requires_grad and value.is_leaf else None
        for tensor in (value, torch_private.base_of(value), gradient):
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                if tensor is not None and tensor.device.type != "cpu":
                    yield tensor.untyped_storage()
