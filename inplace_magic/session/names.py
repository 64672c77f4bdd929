"""Names that a person would use for live objects: paths over the user's names, as ``net.act`` or ``hidden[0]``."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from ..diagnosis import place_of_items
from ..source.own import is_a
from ..storage import storage_key
from ..torch_private import unobserved
from .user_objects import join, tensors_in, walk


class Names:
    """Finds the user's name of a live object. Built once, when a replay is over.

    ``inplace`` holds (path, type's name) of the modules whose flag of that name is set, ``inference`` the paths of
    inference tensors.
    """

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self._by_id: dict[int, str] = {}
        self._by_storage: dict[int, str] = {}
        self._kept: list[Any] = []
        self.inplace: list[tuple[str, str]] = []
        self.inference: list[str] = []
        owned: dict[int, str] = {}  # a module's parameter is called that, not by the name a loop has left on it
        for path, value in walk(namespace):
            if not is_a(value, (torch.Tensor, torch.nn.Module)):
                continue
            self._by_id.setdefault(id(value), path)
            self._kept.append(value)
            if is_a(value, torch.nn.Module):
                for name, parameter in tensors_in(value, "_parameters"):
                    owned.setdefault(id(parameter), join(path, name))
                if inspect.getattr_static(value, "inplace", False) is True:
                    self.inplace.append((path, type(value).__name__))
            elif is_a(value, torch.Tensor):
                with unobserved():  # a class of tensors may refuse to be asked
                    self._add(path, value)
        self._by_id |= owned

    def _add(self, path: str, tensor: torch.Tensor) -> None:
        if tensor.is_inference() and not is_a(tensor, torch.nn.Parameter):
            self.inference.append(path)
        key = storage_key(tensor)
        if key is not None:
            self._by_storage.setdefault(key, path)

    def of(self, value: Any) -> str | None:
        """The path of this very object."""
        return self._by_id.get(id(value)) if value is not None else None

    def of_memory(self, tensor: torch.Tensor | None) -> str | None:
        """The path of an object that shares the tensor's storage."""
        if tensor is None:
            return None
        key = storage_key(tensor)
        return self._by_id.get(id(tensor)) or (self._by_storage.get(key) if key is not None else None)


def graph_holders(namespace: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """(path, grad_fn) of every tensor that the names lead to and that carries a graph."""
    return [
        (path, node)
        for path, value in walk(namespace)
        if is_a(value, torch.Tensor) and (node := history_of(value)) is not None
    ]


def with_items_alike(found: Sequence[str], holders: Iterable[tuple[str, Any]]) -> tuple[str, ...]:
    """The paths of ``found``, and where several of them are items of one container, those of its other items: what
    reaches a few of them in one run reaches others in the next.
    """
    times = Counter(place_of_items(path) for path in found)
    alike = (path for path, _ in holders if times[place_of_items(path)] > 1)
    return tuple(dict.fromkeys((*found, *alike)))


def history_of(tensor: torch.Tensor) -> Any:
    """A tensor's grad_fn, or None where it has none or torch refuses to tell."""
    try:
        with unobserved():
            return None if tensor.is_inference() else tensor.grad_fn
    except (
        RuntimeError,
        ValueError,
    ):  # a view whose base was changed so that torch forbids it; a lazy module's parameter
        return None
