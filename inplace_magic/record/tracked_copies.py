"""What the code means where torch refuses an in-place write: the write is made on a tracked copy instead.

NOTE [Tracked copies]. A refused write hits a tensor that may not be written: a leaf, a view of one, one of several views,
a view made without grad mode, an inference tensor, memory shared by several elements. Its storage gets a copy: a
clone of the base that autograd sees as a function of it. From then on every argument that lives in that storage is
replaced by the same stretch of the copy (``as_strided``), so that the write, and all that is read afterwards, is
tracked as if torch allowed it. The gradients that come out are those of the code as written, and no rule of ours has
had a hand in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..storage import Key, storage_key
from ..torch_private import base_of
from .operations import plain_name

# What a leaf is asked about itself is answered by itself, even when its values are read from a copy.
_ABOUT_ITSELF = frozenset({"grad", "_grad", "requires_grad", "is_leaf", "grad_fn", "_version", "_base"})
_OWN_METHODS = frozenset({"register_hook", "register_post_accumulate_grad_hook", "retain_grad", "requires_grad_"})


class TrackedCopies:
    """The tracked copies of one replay, by storage."""

    def __init__(self) -> None:
        # of the whole storage under None, or of single stretches by their geometry
        self.table: dict[Key, dict[tuple[int, ...] | None, torch.Tensor]] = {}
        self._kept: list[torch.Tensor] = []  # a key must not be reused while it is in the table

    def __bool__(self) -> bool:
        return bool(self.table)

    def create(self, tensor: torch.Tensor, *, whole: bool) -> None:
        """Gives ``tensor`` a copy: of its whole base, or of itself alone where its elements share memory."""
        key = storage_key(tensor)
        if key is None:
            return
        copies = self.table.get(key, {})
        if None in copies or geometry_of(tensor) in copies:
            return
        with torch.inference_mode(False), torch.enable_grad():
            if whole and not tensor.is_inference():
                base = base_of(tensor)
                copy = _strided_clone(tensor if base is None or _is_own_leaf(tensor) else base)
                geometry = None
            else:
                geometry = geometry_of(tensor)
                if any(other is not None and _meet(geometry, other) for other in copies):
                    return  # neither copy would hear of what is written into the other one
                copy = tensor.clone(memory_format=torch.contiguous_format)
        self.table.setdefault(key, {})[geometry] = copy
        self._kept.append(tensor)

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor to use in place of ``tensor``: a stretch of its copy, or itself."""
        found = self.table.get(storage_key(tensor) or 0)
        if found is None:
            return tensor
        copy = found.get(None)
        if copy is None:
            return found.get(geometry_of(tensor), tensor)
        if tensor.is_inference() or tensor.is_conj() or tensor.is_neg():
            return tensor  # a stretch would be without what such a look does to each element
        if copy.is_complex() and tensor.dtype == copy.dtype.to_real():
            copy = torch.view_as_real(copy)  # ``x.imag`` lies among the numbers that x is made of
        elif tensor.is_complex() and copy.dtype == tensor.dtype.to_real() and copy.is_contiguous():
            copy = torch.view_as_complex(copy.as_strided((copy.numel() // 2, 2), (2, 1), 0))  # pairs, as numbers
        if tensor.dtype != copy.dtype:
            return tensor
        if tensor.shape == copy.shape and tensor.stride() == copy.stride() and not tensor.storage_offset():
            return copy
        return copy.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def behind(self, copy: torch.Tensor) -> torch.Tensor:
        """The tensor that a tensor is the whole copy of, or itself."""
        return next((one for one in self._kept if self.table[storage_key(one) or 0].get(None) is copy), copy)

    def stretch(self, tensor: torch.Tensor, alias: torch.Tensor) -> torch.Tensor:
        """The stretch of ``tensor``'s copy that ``alias`` looks at, be it in the tensor's own memory or the copy's."""
        copy = self.table[storage_key(tensor) or 0].get(None)
        if copy is None:
            return self.of(alias)
        return copy.as_strided(alias.shape, alias.stride(), alias.storage_offset())

    def replace(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Arguments with every tensor that has a copy replaced, one level of lists and tuples deep."""
        return [self._swap(a) for a in args], {k: self._swap(v) for k, v in kwargs.items()}

    def retry(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Runs a refused call again, on copies."""
        new_args, new_kwargs = self.replace(args, kwargs)
        return func(*new_args, **new_kwargs)

    def own(self, result: Any, written: Sequence[Any]) -> Any:
        """The user's tensor in place of its copy, so that `w -= g` leaves the name with the tensor that had it."""
        return next((t for t in written if self and result is self.of(t)), result)

    def _swap(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.of(value)
        if isinstance(value, (list, tuple)) and any(isinstance(v, torch.Tensor) for v in value):
            return _like(value, [self._swap(v) for v in value])
        return value


def _like(sequence: Any, items: list[Any]) -> Any:
    """A list, a tuple or a named tuple as another one is, of other items."""
    return getattr(type(sequence), "_make", list if isinstance(sequence, list) else tuple)(items)


def geometry_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """What of its storage a tensor looks at."""
    return (*tensor.shape, -1, *tensor.stride(), tensor.storage_offset())


def _meet(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether two stretches may have an element in common: whether one begins before the other ends."""

    def bounds(geometry: tuple[int, ...]) -> tuple[int, int]:
        dimensions = geometry.index(-1)
        sizes, strides = geometry[:dimensions], geometry[dimensions + 1 : -1]
        return geometry[-1], geometry[-1] + sum((size - 1) * step for size, step in zip(sizes, strides) if size)

    (first, last), (begin, end) = bounds(one), bounds(other)
    return first <= end and begin <= last


def _strided_clone(base: torch.Tensor) -> torch.Tensor:
    """A clone that keeps strides and offset, so that any stretch of the storage has its counterpart."""
    if base.storage_offset() == 0 and base.is_contiguous():
        return base.clone(memory_format=torch.contiguous_format)
    return base.clone(memory_format=torch.preserve_format)


def about_itself(func: Callable[..., Any]) -> bool:
    """Whether a call asks a tensor about itself, not for its values."""
    getter = getattr(func, "__self__", None)  # the getset descriptor of `Tensor.grad.__get__`
    return getattr(getter, "__name__", None) in _ABOUT_ITSELF or plain_name(func) in _OWN_METHODS


def asked_of_leaves(func: Callable[..., Any], args: Sequence[Any], replaced: Sequence[Any]) -> Sequence[Any]:
    """A call's replaced arguments, but for the leaves that ``autograd.grad`` is asked for: theirs is the gradient that ``.grad``
    would get, and not that of what has been written into them since.
    """
    if func is not torch.autograd.grad or len(args) < 2:
        return replaced
    inputs = [one if _is_own_leaf(one) else other for one, other in zip(args[1], replaced[1])]
    return [replaced[0], inputs, *replaced[2:]]


def _is_own_leaf(value: Any) -> bool:
    """Whether a value, which may be an edge of the graph, is a leaf that requires grad. A view of what does may refuse to be
    asked; one of memory without grad, ``x.view(-1).requires_grad_()``, may be a leaf.
    """
    if not isinstance(value, torch.Tensor):
        return False
    base = base_of(value)
    return (base is None or not base.requires_grad) and value.requires_grad and value.is_leaf


def read_from_copies(written: Sequence[torch.Tensor], arguments: Any) -> Any:
    """A call's arguments, each that lies in memory which is written being a copy, but for the target of the write.

    ``arguments``: those by position, of which the first one may be the target, or those by name, of which ``out`` is.
    """
    memory = {storage_key(tensor) for tensor in written}

    def copied(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.clone() if storage_key(value) in memory else value
        if isinstance(value, (list, tuple)):
            return _like(value, [copied(item) for item in value])
        return value

    def is_target(value: Any) -> bool:
        return any(
            one is target for one in (value if isinstance(value, (list, tuple)) else [value]) for target in written
        )

    if isinstance(arguments, Mapping):
        return {name: value if name == "out" else copied(value) for name, value in arguments.items()}
    return [value if i == 0 and is_target(value) else copied(value) for i, value in enumerate(arguments)]
