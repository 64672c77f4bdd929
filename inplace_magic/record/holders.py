"""Which of the user's places hold a history, by identity: names, attributes, items of containers, closures."""

from __future__ import annotations

import collections
import itertools
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ..session.names import history_of
from ..session.user_objects import attributes_of, elements, has_own_attributes, modules_below, names_in, under
from ..source.location import kind_of
from ..source.own import is_a, own_names
from ..torch_private import sequence_number
from .evidence import Holder

_WIDTH = 32  # items looked at in one container
_PARTS = 4  # of a tuple that are told apart
_ITEMS = 6  # items that are named one by one, where they have numbers
_DEPTH = 5
_MOST = 800  # values looked at in one frame
_PLAIN = (str, bytes, int, float, bool, complex, type, types.ModuleType, torch.device, torch.dtype, torch.Generator)


@dataclass(frozen=True)
class Held:
    """A place, and the nodes that created what it held."""

    record: Holder
    nodes: frozenset[int]


@dataclass
class _Walk:
    scope: str
    found: list[Held] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    left: list[int] = field(default_factory=lambda: [_MOST])  # shared by the walks into closures

    def visit(self, path: str, value: Any, depth: int = _DEPTH, owner: tuple[str, str] | None = None) -> None:
        """``owner`` is the class and the attribute, where the value is one."""
        self.left[0] -= 1
        if is_a(value, torch.Tensor):
            if (number := _number(value)) is not None:
                self._add(path, "Tensor", frozenset({number}), owner)
            return
        if depth == 0 or self.left[0] < 0 or value is None or is_a(value, _PLAIN) or id(value) in self.seen:
            return
        self.seen.add(id(value))
        if is_a(value, (list, tuple, dict, collections.deque)):
            self._container(path, value, depth, owner)
        elif is_a(value, types.FunctionType):
            self._function(path, value, depth)
        elif is_a(value, types.MethodType):
            self.visit(f"{path}.__self__", value.__self__, depth - 1)
        elif is_a(value, types.GeneratorType) and value.gi_frame is not None:
            _Walk(value.gi_code.co_qualname, self.found, self.seen, self.left).names(value.gi_frame.f_locals)
        elif is_a(value, torch.nn.Module):
            for base, module in modules_below(path, value):
                if not type(module).__module__.startswith("torch.nn."):  # keeps no history
                    self._attributes(base, module, depth)
        elif is_a(value, torch.distributions.Distribution) or _keeps_values(value):
            self._attributes(path, value, depth)

    def names(self, values: Mapping[str, Any]) -> None:
        for name, value in own_names(values):
            self.visit(name, value)

    def _add(self, path: str, shape: str, nodes: frozenset[int], owner: tuple[str, str] | None) -> None:
        self.found.append(Held(Holder(self.scope, path, shape), nodes))
        if owner is not None:
            self.found.append(Held(Holder(f"class {owner[0]}", owner[1], shape), nodes))

    def _container(self, path: str, value: Any, depth: int, owner: tuple[str, str] | None) -> None:
        shape, nodes = shape_of(value)
        if shape is not None:
            self._add(path, shape, nodes, owner)
        pairs = list(_items(value))
        for key, item in pairs:
            told = is_a(key, str) or (len(pairs) <= _ITEMS and is_a(key, int))
            if told and (inner := under(path, key)) is not None:
                own = owner and (owner[0], str(under(owner[1], key)))
                self.visit(inner, item, depth - 1, own)
            elif not is_a(item, torch.Tensor):
                self.visit(f"{path}[...]", item, depth - 1)

    def _function(self, path: str, function: types.FunctionType, depth: int) -> None:
        """What its closure, its defaults and its attributes keep."""
        code = function.__code__
        if kind_of(code.co_filename) != "user":
            return
        for name, value in own_names(vars(function)):
            self.visit(f"{path}.{name}", value, depth - 1)
        inner = _Walk(code.co_qualname, self.found, self.seen, self.left)
        given = function.__defaults__ or ()
        for name, value in zip(code.co_varnames[code.co_argcount - len(given) :], given):
            inner.visit(name, value, depth - 1)
        for name, cell in zip(code.co_freevars, function.__closure__ or ()):
            try:
                inner.visit(name, cell.cell_contents, depth - 1)
            except ValueError:  # not bound yet
                continue

    def _attributes(self, path: str, owner: Any, depth: int) -> None:
        for name, value in attributes_of(owner):
            self.visit(f"{path}.{name}", value, depth - 1, (type(owner).__qualname__, name))


def holders(frame: types.FrameType | None) -> Iterator[Held]:
    """Every place from the user's frames outwards that holds a tensor with a history."""
    while frame is not None:
        code = frame.f_code
        if kind_of(code.co_filename) == "user":
            walk = _Walk(code.co_qualname)
            walk.names(dict(names_in(frame)))
            yield from walk.found
            if code.co_name == "<module>":
                return
        frame = frame.f_back


def shape_of(value: Any, depth: int = 3) -> tuple[str | None, frozenset[int]]:
    """(``Tensor``, ``tuple[Tensor]``, ``dict[list[Tensor]]``, ``tuple(Tensor|-|list[Tensor])`` for a short tuple of several
    kinds; None where no history is held; the nodes that are).
    """
    if is_a(value, torch.Tensor):
        number = _number(value)
        return (None, frozenset()) if number is None else ("Tensor", frozenset({number}))
    if depth == 0 or not is_a(value, (list, tuple, dict, collections.deque)):
        return None, frozenset()
    items = [item for _, item in _items(value)]
    inner = [shape_of(item, depth - 1) for item in items]
    shapes = {shape for shape, _ in inner if shape is not None}
    if not shapes:
        return None, frozenset()
    other = "mapping" if is_a(value, dict) else "sequence"
    kind = type(value).__name__ if type(value) in (list, tuple, dict, collections.deque) else other
    # What holds no history has to be a tensor beside tensors, and a container, be it empty, beside containers.
    alike = torch.Tensor if shapes == {"Tensor"} else (list, tuple, dict)
    mixed = len(shapes) > 1 or any(not is_a(item, alike) for item in items)
    shape = f"{kind}[{'mixed' if mixed else shapes.pop()}]"
    if mixed and type(value) is tuple and len(value) <= _PARTS:
        shape = f"tuple({'|'.join(one or '-' for one, _ in inner)})"
    return shape, frozenset().union(*(nodes for _, nodes in inner))


def _keeps_values(value: Any) -> bool:
    return has_own_attributes(value) and not is_a(value, torch.optim.Optimizer)


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    pairs = dict.items(value) if is_a(value, dict) else enumerate(elements(value))
    return itertools.islice(pairs, _WIDTH)


def _number(tensor: torch.Tensor) -> int | None:
    node = history_of(tensor)
    return None if node is None else sequence_number(node)
