"""What tells the memory of one tensor from that of another."""

from __future__ import annotations

from typing import Generic, TypeVar

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .torch_private import batch_of, storage_id

Key = int
T = TypeVar("T")

_PRUNE_AT = 256


def storage_key(tensor: torch.Tensor) -> Key | None:
    """The address where a tensor's storage begins; None where there is none.

    Unlike ``_cdata`` it is the same for aliases made through numpy and dlpack. What ``torch.vmap`` hands to a function has
    that of the whole batch.
    """
    try:
        address = tensor.data_ptr()  # three times as fast as asking the storage, which makes a Python object each time
        if address:
            return address - int(tensor.storage_offset()) * tensor.element_size()
        storage = tensor.untyped_storage()
        return storage.data_ptr() or -storage_id(storage)
    except (RuntimeError, NotImplementedError, ValueError):  # ValueError: a lazy module's parameter
        batch = batch_of(tensor)
        return None if batch is None else storage_key(batch)


def shape_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """A tensor's sizes; none where it has no such, as a nested tensor."""
    try:
        return tuple(tensor.shape)
    except RuntimeError:
        return ()


class ByStorage(Generic[T]):
    """A value for each storage, forgotten when the storage is gone: its address is used again."""

    def __init__(self) -> None:
        self._of: dict[Key, tuple[StorageWeakRef, T]] = {}
        self._prune_at = _PRUNE_AT

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return self.get(tensor) is not None

    def get(self, tensor: torch.Tensor) -> T | None:
        """What was noted of the tensor's storage."""
        found = self._of.get(storage_key(tensor) or 0)
        return None if found is None or found[0].expired() else found[1]

    def put(self, tensor: torch.Tensor, value: T) -> None:
        """Notes a value of the tensor's storage, in place of an earlier one. Nothing is noted where there is none."""
        key = storage_key(tensor)
        if key is None:
            return
        if len(self._of) >= self._prune_at:
            self._of = {k: v for k, v in self._of.items() if not v[0].expired()}
            self._prune_at = _PRUNE_AT + 2 * len(self._of)
        self._of[key] = StorageWeakRef(tensor.untyped_storage()), value
