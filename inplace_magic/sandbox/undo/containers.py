"""How each container is noted and put back: by what it holds, in its order."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .walk import Walk


def visit_dict(walk: Walk, obj: dict[Any, Any]) -> None:
    items = _items(obj)
    walk.note(restore_dict, obj, items)
    for item in items:
        walk.follow(item)
    if isinstance(obj, defaultdict):
        walk.note(setattr, obj, "default_factory", obj.default_factory)
        walk.follow((obj.default_factory,))


def _items(obj: dict[Any, Any]) -> list[tuple[Any, Any]]:
    return list(OrderedDict.items(obj) if isinstance(obj, OrderedDict) else dict.items(obj))


def restore_dict(obj: dict[Any, Any], items: list[tuple[Any, Any]]) -> None:
    now = _items(obj)
    if _same(now, items):
        return
    base: Any = OrderedDict if isinstance(obj, OrderedDict) else dict
    saved = dict(items)
    for key, _ in now:
        if key not in saved:
            base.__delitem__(obj, key)
    if any(a is not b for (a, _), b in zip(_items(obj), saved)):  # not in the order in which they were
        base.clear(obj)
    for key, value in items:
        base.__setitem__(obj, key, value)


def _same(now: list[tuple[Any, Any]], items: list[tuple[Any, Any]]) -> bool:
    return len(now) == len(items) and all(a[0] is b[0] and a[1] is b[1] for a, b in zip(now, items))


def visit_list(walk: Walk, obj: list[Any]) -> None:
    items = obj[:] if type(obj) is list else list.__getitem__(obj, slice(None))
    walk.note(restore_list, obj, items)
    walk.follow(items)


def restore_list(obj: list[Any], items: list[Any]) -> None:
    now = list.__getitem__(obj, slice(None))
    if len(now) != len(items) or any(a is not b for a, b in zip(now, items)):
        list.__setitem__(obj, slice(None), items)


def visit_set(walk: Walk, obj: set[Any]) -> None:
    items = list(set.__iter__(obj))
    walk.note(_restore_set, obj, items)
    walk.follow(items)


def _restore_set(obj: set[Any], items: list[Any]) -> None:
    if {id(item) for item in obj} != {id(item) for item in items}:
        set.clear(obj)
        set.update(obj, items)


def visit_deque(walk: Walk, obj: deque[Any]) -> None:
    items = list(deque.__iter__(obj))
    walk.note(_restore_deque, obj, items)
    walk.follow(items)


def _restore_deque(obj: deque[Any], items: list[Any]) -> None:
    now = list(obj)
    if len(now) != len(items) or any(a is not b for a, b in zip(now, items)):
        deque.clear(obj)
        deque.extend(obj, items)


def visit_items(walk: Walk, obj: Any) -> None:
    walk.follow(tuple.__iter__(obj) if isinstance(obj, tuple) else frozenset.__iter__(obj))


def visit_memory(walk: Walk, obj: Any) -> None:
    if walk.has_room(len(obj)):
        walk.note(_restore_memory, obj, obj[:])


def _restore_memory(obj: Any, contents: Any) -> None:
    if obj != contents:
        obj[:] = contents


def visit_mapping_proxy(walk: Walk, obj: Any) -> None:
    walk.follow(obj.values())
