"""Tensors by value, as autograd knows them: which share a storage, which are views of which, `.grad`, hooks.

NOTE [Tensors by value]. torch's own pickling keeps values and drops what our question is about: a view comes back with a
storage of its own, `.grad` is gone, and what has a history comes back as a leaf, through which a backward runs and says
nothing. Here a storage is written once, by identity. A view is made as a view of its base again, so that both count
their versions together. Of two tensors that share a storage otherwise, torch does not tell whether they share the
counter (`detach()`) or not (`.data`); they do if it stands the same in both. A tensor with a history gets its value and,
in place of the history, a node that refuses to be run: its value may be read, a backward through it ends the run.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ... import torch_private
from .absent import NotTaken

_PLAIN = (torch.Tensor, torch.nn.Parameter)


class StorageKey(NamedTuple):
    """A storage of the session: its identity there, its size in bytes, its device."""

    identity: int
    size: int
    device: str


class Geometry(NamedTuple):
    """How a tensor lies in its storage. ``offset`` and ``stride`` count elements."""

    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


class TensorReducer:
    """Reduces tensors to what ``build`` takes. ``storage`` gives what stands for a storage in the pickle."""

    def __init__(self, storage: Callable[[StorageKey, torch.UntypedStorage], Any]) -> None:
        self._storage = storage
        self._first: dict[int, torch.Tensor] = {}  # of each storage, the tensor that owns its version counter
        self._kept: list[Any] = []

    def reduce(self, tensor: torch.Tensor) -> Any:
        """What ``reducer_override`` returns for a tensor; NotImplemented leaves it to torch.

        Raises NotTaken for a tensor that is known by its type alone, such as one of a distributed kind.
        """
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
            return self._by_torch(tensor)
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError, ValueError):
            return self._by_torch(tensor)
        if tensor.device.type == "meta":
            return self._by_torch(tensor)
        if type(tensor) not in _PLAIN and hasattr(type(tensor), "__torch_dispatch__") and _dispatches(type(tensor)):
            raise NotTaken(f"a tensor of the type {type(tensor).__name__}")
        key = StorageKey(torch_private.storage_id(storage), storage.nbytes(), str(tensor.device))
        place = Geometry(tensor.dtype, tuple(tensor.size()), tuple(tensor.stride()), int(tensor.storage_offset()))
        with torch.no_grad():
            history = _history(tensor)
            state = None if history else self._state(tensor)
        origin: Any = self._storage(key, storage)
        return build, (origin, self._owner(tensor, key), place, _kind(tensor), history), state, None, None, set_state

    def _owner(self, tensor: torch.Tensor, key: StorageKey) -> torch.Tensor | None:
        """The tensor that this one is a view or an alias of, with one counter for both; None if it has its own."""
        if tensor.is_inference():
            return None
        base = torch_private.base_of(tensor)
        if base is not None and base is not tensor:
            self._kept.append(base)
            return base
        first = self._first.setdefault(key.identity, tensor)
        self._kept.append(tensor)
        return (
            first
            if first is not tensor and torch_private.version_of(first) == torch_private.version_of(tensor)
            else None
        )

    def _state(self, tensor: torch.Tensor) -> dict[str, Any] | None:
        state: dict[str, Any] = {}
        if tensor.requires_grad and tensor.is_leaf:
            if tensor.grad is not None:
                state["grad"] = tensor.grad
                self._kept.append(tensor.grad)
            for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
                if getattr(tensor, name, None):
                    state[name] = getattr(tensor, name)
        attributes = getattr(tensor, "__dict__", None)
        if attributes:
            state["attributes"] = dict(attributes)
        return state or None

    def _by_torch(self, tensor: torch.Tensor) -> Any:
        if _history(tensor):
            raise NotTaken("a tensor with a graph")
        return NotImplemented


class Kind(NamedTuple):
    """What a tensor is beside its values."""

    type: type[torch.Tensor]
    requires_grad: bool
    inference: bool
    creation: Any = None  # how a view was made, as torch keeps it


def _kind(tensor: torch.Tensor) -> Kind:
    inference = tensor.is_inference()
    creation = None if inference else torch_private.view_creation(tensor)
    return Kind(type(tensor), tensor.requires_grad, inference, creation)


def _dispatches(kind: type) -> bool:
    return getattr(kind, "__torch_dispatch__", None) is not torch.Tensor.__torch_dispatch__


def _history(tensor: torch.Tensor) -> bool:
    try:
        return not tensor.is_inference() and tensor.grad_fn is not None
    except RuntimeError:  # a view whose base was changed in a forbidden way
        return True


# ---- in the replica ----------------------------------------------------------------------------------------------


class _LostGraph(torch.autograd.Function):
    """Stands for a graph that was left behind."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise NotTaken("the graph of a tensor from an earlier cell")


def build(
    storage: torch.UntypedStorage, owner: torch.Tensor | None, place: Geometry, kind: Kind, history: bool
) -> torch.Tensor:
    """The tensor again, without its state."""
    if kind.inference:
        with torch.inference_mode():
            return _typed(_lying(storage, place), kind)
    if history:
        with torch.no_grad():
            value = _lying(storage, place)
        with torch.enable_grad():
            lost: torch.Tensor = _LostGraph.apply(value.requires_grad_())
        return lost
    if owner is None:
        with torch.no_grad():
            return _typed(_lying(storage, place), kind)
    with torch.no_grad():
        view = _as_view(owner, storage, place)
        if kind.creation is None:
            return _typed(view.detach(), kind)
    torch_private.set_view_creation(view, kind.creation)
    return _typed(view, kind)


def _lying(storage: torch.UntypedStorage, place: Geometry) -> torch.Tensor:
    empty = torch.empty(0, dtype=place.dtype, device=storage.device)
    return empty.set_(storage, place.offset, place.size, place.stride).data  # as often written as any new tensor


def _as_view(owner: torch.Tensor, storage: torch.UntypedStorage, place: Geometry) -> torch.Tensor:
    if owner.dtype == place.dtype:
        return owner.as_strided(place.size, place.stride, place.offset)
    return _lying(storage, place)  # a view of another type: its counter is its own from here on


def _typed(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    if issubclass(kind.type, torch.nn.Parameter):
        return torch_private.retyped(tensor, kind.type, kind.requires_grad)
    if kind.type is not torch.Tensor:
        tensor = tensor.as_subclass(kind.type)
    if kind.requires_grad and not tensor.requires_grad:
        tensor.requires_grad_()
    return tensor


def set_state(tensor: torch.Tensor, state: dict[str, Any]) -> None:
    """What a tensor carries: attributes, hooks, and its gradient."""
    for name, value in state.pop("attributes", {}).items():
        setattr(tensor, name, value)
    gradient = state.pop("grad", None)
    if gradient is not None:
        tensor.grad = gradient
    for name, hooks in state.items():
        setattr(tensor, name, hooks)


def bytes_of(storage: torch.UntypedStorage) -> memoryview:
    """The bytes of a storage in the host's memory, which are not copied."""
    size = storage.nbytes()
    return memoryview((ctypes.c_char * size).from_address(storage.data_ptr())) if size else memoryview(b"")
