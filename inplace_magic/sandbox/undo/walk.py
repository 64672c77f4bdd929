"""Goes over everything the session's names lead to, once, and notes how each object was.

The walk is iterative and linear in the number of objects. It has two passes: first what the code that will run can reach
by name, then the rest of the namespace. Something that cannot be put back is a reason to decline in the first pass only.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from .containers import restore_dict
from .kinds import visitor
from .tensors import Tensors

MAX_OBJECTS = 1_000_000
"""Objects looked at; with more, the rerun is declined. About two seconds' worth."""

MAX_BYTES = 256 * 2**20
"""Copied of numpy arrays and other plain memory in all; with more, the rerun is declined."""

_ATOMS = frozenset((int, float, complex, bool, str, bytes, type(None), type(...), type(NotImplemented), range, slice))
_ANY_NAME = frozenset(["globals", "locals", "vars", "eval", "exec", "dir", "get_ipython", "__import__", "__dict__"])
Restorer = tuple[Callable[..., Any], tuple[Any, ...]]


class Walk:
    """What was found, and how it was."""

    def __init__(self, namespace: dict[str, Any], tensors: Tensors) -> None:
        self.tensors = tensors
        self.declined: str | None = None
        self.namespace = namespace
        self.restorers: list[Restorer] = []
        self._kept: list[Any] = []  # so that no id is used twice
        self._seen: set[int] = {id(namespace)}
        self._todo: list[Any] = []
        self._bytes = 0
        self._in_reach = True
        self._name = ""

    def run(self, code: Iterable[types.CodeType], gone: Collection[str], extra_roots: Iterable[Any]) -> None:
        code = list(code)
        self.note(restore_dict, self.namespace, list(self.namespace.items()))
        names = _names(code)
        everything = not code or not names.isdisjoint(_ANY_NAME)
        reachable = [n for n in self.namespace if n not in gone and (everything or n in names)]
        rest = set(self.namespace) - set(reachable)
        self._from("an extra root", *extra_roots)
        for name in reachable:
            self._from(name, self.namespace[name])
        self._in_reach = False
        for name in sorted(rest, key=str):
            self._from(name, self.namespace[name])

    def _from(self, name: Any, *roots: Any) -> None:
        self._name = str(name)
        self._todo.extend(roots)
        while self._todo:
            obj = self._todo.pop()
            kind = type(obj)
            if kind in _ATOMS or id(obj) in self._seen:
                continue
            if len(self._kept) >= MAX_OBJECTS:
                self.declined = self.declined or f"the session holds more than {MAX_OBJECTS:,} objects"
                self._todo.clear()
                return
            self._seen.add(id(obj))
            self._kept.append(obj)
            try:
                visitor(kind)(self, obj)
            except Exception as e:  # some object's own code, or an object in a state of its own
                self.decline(f"leads to a {kind.__name__}, which cannot be looked at ({type(e).__name__})")

    # What a visitor may do.

    def note(self, restore: Callable[..., Any], *how_it_was: Any) -> None:
        self.restorers.append((restore, how_it_was))

    def follow(self, objects: Iterable[Any]) -> None:
        self._todo.extend(objects)

    def decline(self, why: str) -> None:
        if self._in_reach and self.declined is None:
            self.declined = f"{self._name} {why}"

    def has_room(self, size: int) -> bool:
        """Whether that much memory may be copied; what the code cannot reach is not worth a copy."""
        if self._bytes + size > MAX_BYTES:
            self.decline(f"leads to more than {MAX_BYTES >> 20} MB of arrays, too much to copy")
            return False
        self._bytes += size
        return True

    def use_names(self, code: types.CodeType, names: dict[str, Any]) -> None:
        if self._in_reach:
            self._todo.extend(names[name] for name in _names([code]) if name in names)


def _names(codes: Iterable[types.CodeType]) -> set[str]:
    """Every name that the code, or code within it, uses as a global or an attribute."""
    names: set[str] = set()
    todo = list(codes)
    while todo:
        code = todo.pop()
        names.update(code.co_names)
        todo.extend(c for c in code.co_consts if isinstance(c, types.CodeType))
    return names


def restore(restorers: Iterable[Restorer]) -> Iterator[str]:
    """Put every noted object back; yields what did not go back, in words."""
    for put_back, how_it_was in restorers:
        try:
            put_back(*how_it_was)
        except Exception as e:
            yield f"{type(how_it_was[0]).__name__}: {e}"
