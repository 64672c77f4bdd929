"""Names that a person would use for live objects: paths over the user's names, as ``net.act`` or ``hidden[0]``."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ..record.tracked_copies import storage_key

# How far the names lead: an item of a container costs more than an attribute of an object, as there may be many.
_ITEM, _ATTRIBUTE, _REACH = 3, 2, 7
_WIDTH = 200  # items looked at in one container
_KEYS = (str, bytes, int, float, tuple, frozenset, enum.Enum, type(None))  # what a path can be written with
_HIDDEN = frozenset({"In", "Out", "exit", "quit", "get_ipython", "open"})


def user_names(namespace: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The names that belong to the user, newest last, without IPython's own."""
    for name, value in list(namespace.items()):
        if isinstance(name, str) and not name.startswith("_") and name not in _HIDDEN:
            yield name, value


def walk(namespace: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """(path, object) for tensors and modules that the user's names lead to, short paths first."""
    level = [(path, value, _REACH) for path, value in user_names(namespace)]
    seen: set[int] = set()
    while level:
        following: list[tuple[str, Any, int]] = []
        for path, value, reach in level:
            if isinstance(value, torch.Tensor):
                yield path, value
                continue
            if id(value) in seen:
                continue
            seen.add(id(value))
            if isinstance(value, torch.nn.Module):
                yield from _module(path, value)
            left = reach - (_ITEM if isinstance(value, (list, tuple, dict)) else _ATTRIBUTE)
            if left >= 0:
                following.extend((inner, item, left) for inner, item in _children(path, value))
        level = following


def _module(path: str, module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    for name, child in module.named_modules():
        yield (join(path, name) if name else path), child
    for name, parameter in module.named_parameters(remove_duplicate=True):
        yield join(path, name), parameter
    for name, buffer in module.named_buffers(remove_duplicate=True):
        yield join(path, name), buffer
    for name, child in module.named_modules():
        base = join(path, name) if name else path
        for key, value in list(vars(child).items()):
            if not key.startswith("_"):
                yield from _tensors(f"{base}.{key}", value)


def _tensors(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value[:_WIDTH]):
            yield from _tensors(f"{path}[{i}]", item)


def items_of(path: str, container: Any, width: int = _WIDTH) -> Iterator[tuple[str, Any]]:
    """The first items of a list, tuple or dict, with the paths that lead to them."""
    if isinstance(container, dict):
        # An optimizer's state has parameters for keys: to write one takes longer than a training step, and names nothing.
        pairs = itertools.islice(container.items(), width)
        yield from ((f"{path}[{key!r}]", item) for key, item in pairs if isinstance(key, _KEYS))
    else:
        yield from ((f"{path}[{i}]", item) for i, item in enumerate(container[:width]))


def _children(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (list, tuple, dict)):
        if not hasattr(value, "_fields"):
            yield from ((inner, item) for inner, item in items_of(path, value) if _interesting(item))
    elif type(value).__module__ == "__main__" or isinstance(value, torch.optim.Optimizer):
        attributes = {} if isinstance(value, torch.nn.Module) else getattr(value, "__dict__", {})
        yield from ((f"{path}.{k}", v) for k, v in list(attributes.items()) if k.isidentifier() and _interesting(v))


def _interesting(value: Any) -> bool:
    return not isinstance(value, (str, bytes, int, float, bool, type(None), type))


def join(path: str, dotted: str) -> str:
    """A module's path and a dotted name below it as an expression: ``net.layers[0].weight``."""
    for part in dotted.split("."):
        path += f"[{part}]" if part.isdigit() else f".{part}"
    return path


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
        for path, value in walk(namespace):
            self._by_id.setdefault(id(value), path)
            self._kept.append(value)
            if isinstance(value, torch.nn.Module) and getattr(value, "inplace", False) is True:
                self.inplace.append((path, type(value).__name__))
            if isinstance(value, torch.Tensor):
                if value.is_inference() and not isinstance(value, torch.nn.Parameter):
                    self.inference.append(path)
                key = storage_key(value)
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
        if isinstance(value, torch.Tensor) and (node := history_of(value)) is not None
    ]


def history_of(tensor: torch.Tensor) -> Any:
    """A tensor's grad_fn, or None where it has none or torch refuses to tell."""
    try:
        return None if tensor.is_inference() else tensor.grad_fn
    except RuntimeError:  # a view whose base was changed in a forbidden way
        return None
