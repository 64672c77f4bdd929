"""Which of the user's names hold a graph while a backward runs: as a tensor, a tuple of tensors, a list."""

from __future__ import annotations

import collections
import itertools
import types
from typing import Any

import torch

from ..session.names import history_of
from ..session.user_objects import attributes_of, elements, has_own_attributes, items_of, modules_below, names_in
from ..source.location import user_frames
from ..source.own import is_a

_WIDTH = 32  # items looked at in one container
_DEPTH = 3
_OBJECTS = 4  # objects in objects

_STORES = (list, dict, collections.deque)  # what is filled bit by bit, and their subclasses

Held = dict[str, dict[str, str]]


def held(frame: types.FrameType | None) -> Held:
    """For each user's function on the stack (by its qualified name) the names that hold a graph, and their shape.

    ``{"train": {"hidden": "tuple[Tensor]", "net.memory.M": "Tensor"}, "class Memory": {"M": "Tensor"}}``. Attributes are
    listed under the class of the object as well, whichever name leads to it; containers that an object fills with
    values that hold a graph under ``stored in Memory``.
    """
    found: Held = {}
    seen: set[int] = set()
    for one in user_frames(frame):
        scope = found.setdefault(one.f_code.co_qualname, {})
        for name, value in names_in(one):
            shape = shape_of(value)
            if shape is not None:
                scope[name] = shape
            _attributes(name, value, found, scope, seen)
    return {scope: names for scope, names in found.items() if names}


def shape_of(value: Any, depth: int = _DEPTH) -> str | None:
    """``Tensor``, ``tuple[Tensor]``, ``dict[list[Tensor]]``, or None where no graph is held."""
    if is_a(value, torch.Tensor):
        return "Tensor" if history_of(value) is not None else None
    if depth == 0:
        return None
    items: list[Any]
    if is_a(value, (list, tuple)):
        kind = type(value).__name__ if type(value) in (list, tuple) else "sequence"
        items = list(itertools.islice(elements(value), _WIDTH))
    elif type(value) is dict:
        kind, items = "dict", list(itertools.islice(value.values(), _WIDTH))
    else:
        return None
    inner = next((s for item in items if (s := shape_of(item, depth - 1)) is not None), None)
    return None if inner is None else f"{kind}[{inner}]"


def _attributes(
    path: str, value: Any, found: Held, scope: dict[str, str], seen: set[int], depth: int = _OBJECTS
) -> None:
    if is_a(value, torch.nn.Module):
        owners = [*modules_below(path, value)]
    elif has_own_attributes(value) and not is_a(value, torch.optim.Optimizer):
        owners = [(path, value)]
    else:
        return
    for base, owner in owners:
        if id(owner) in seen:
            continue
        seen.add(id(owner))
        for name, attribute in attributes_of(owner):
            if (shape := shape_of(attribute)) is not None:
                scope[f"{base}.{name}"] = shape
                found.setdefault(f"class {type(owner).__qualname__}", {})[name] = shape
            elif depth:
                inner = f"{base}.{name}"
                several = is_a(attribute, (list, tuple)) or type(attribute) is dict
                for way, item in items_of(inner, attribute, _WIDTH) if several else [(inner, attribute)]:
                    if way is not None:
                        _attributes(way, item, found, scope, seen, depth - 1)
            if is_a(attribute, _STORES) and stores_graph(attribute):
                found.setdefault(f"stored in {type(owner).__qualname__}", {})[name] = type(attribute).__name__


def stores_graph(value: Any, depth: int = _DEPTH) -> bool:
    """Whether a container, of whatever kind, holds a graph."""
    if is_a(value, torch.Tensor):
        return history_of(value) is not None
    if depth == 0 or not is_a(value, (*_STORES, tuple)):
        return False
    items = value.values() if is_a(value, dict) else value
    return any(stores_graph(item, depth - 1) for item in itertools.islice(items, _WIDTH))
