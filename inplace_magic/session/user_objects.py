"""THE walk: from the user's names to all that they hold, each with the expression that leads to it.

An object is looked into where its insides are the user's to name: containers, instances and classes of his, plain
namespaces, functions (what they close over) and modules of his, and, of torch's, modules and optimizers. Whatever else a
library made is a closed box: its insides have no name that he knows.
"""

from __future__ import annotations

import collections
import contextlib
import enum
import functools
import itertools
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from ..source.own import attributes, defining_module, is_a, is_own, is_own_module, is_own_name, own_names

_LEVELS = 7  # from a name: `a.b.c[0].d`; a module's parts, however deep, are one level
_OBJECTS = 50_000
_WIDTH = 1000  # items looked at in one container
_KEYS = (str, bytes, int, float, tuple, frozenset, enum.Enum, type(None))  # what a path can be written with
_ATOMS = (
    str,
    bytes,
    int,
    float,
    complex,
    bool,
    type(None),
    enum.Enum,
    range,
    slice,
    torch.dtype,
    torch.device,
    torch.Size,
)
_SEQUENCES = (list, tuple, collections.deque)


def names_in(frame: types.FrameType) -> Iterator[tuple[str, Any]]:
    """The user's names that a frame's code can mean: its own, those around it, and the globals that it names."""
    names = frame.f_locals
    yield from own_names(names)
    if names is not frame.f_globals:
        named = {name: frame.f_globals[name] for name in frame.f_code.co_names if name in frame.f_globals}
        yield from ((name, value) for name, value in own_names(named) if name not in names)


def join(path: str, dotted: str) -> str:
    """A module's path and a dotted name below it as an expression: ``net.layers[0].weight``."""
    for part in dotted.split("."):
        path += f"[{part}]" if part.isdigit() else f".{part}"
    return path


# ---- the walk -------------------------------------------------------------------------------------------------------

Step = tuple["str | None", Any]  # None where no expression leads there: a hook, an item of a set


def walk(namespace: Mapping[str, Any], *, unnamed: bool = False) -> Iterator[tuple[str, Any]]:
    """(path, object) for all that the user's names lead to, the shortest paths first, nothing twice but a tensor: of those,
    none that a lazy module has yet to fill.

    Last come the globals of his modules in which any of it was defined. ``unnamed``: also what no path leads to, under
    the path of what holds it.
    """
    level = sorted(own_names(namespace), key=lambda pair: pair[0].startswith("_"))
    seen: set[int] = set()
    held: list[Any] = []  # bound methods and the like are made when they are asked for: an id must not be used again
    while level:
        homes: dict[str, Any] = {}
        for _ in range(_LEVELS):
            following: list[tuple[str, Any]] = []
            for path, value in level:  # grows: a model's parts are as near as the model
                if is_a(value, torch.Tensor):
                    if not is_lazy(value):  # there is nothing in it yet, and torch refuses any question
                        yield path, value
                    continue
                if is_a(value, _ATOMS) or id(value) in seen:
                    continue
                if len(seen) >= _OBJECTS:
                    return
                seen.add(id(value))
                held.append(value)
                yield path, value
                into = level if is_a(value, torch.nn.Module) else following
                into += [(inner or path, child) for inner, child in steps(path, value) if inner or unnamed]
                module = defining_module(value)
                if module is not None and id(module) not in seen and is_own(module):
                    homes[vars(module)["__name__"]] = module
            level = following
        level = list(homes.items())


def steps(path: str, value: Any, width: int = _WIDTH) -> Iterator[Step]:
    """What is one step from an object: its items, attributes, parts; nothing for a closed box.

    What is left of an object whose own code raises is passed over: it is not to keep the rest of a session from being found.
    """
    with contextlib.suppress(Exception):
        yield from _steps(path, value, width)


def _steps(path: str, value: Any, width: int) -> Iterator[Step]:
    if is_a(value, (dict, *_SEQUENCES)):
        yield from items_of(path, value, width)
        if is_own(value):
            yield from _attributes(path, value)
    elif is_a(value, (set, frozenset)):
        yield from ((None, item) for item in itertools.islice(elements(value), width))
    elif is_a(value, torch.nn.Module):
        yield from _parts(path, value)
    elif is_a(value, types.FunctionType):
        yield from _of_function(path, value)
    elif is_a(value, types.ModuleType):
        if is_own(value) and vars(value).get("__name__") != "__main__":
            yield from ((f"{path}.{name}", child) for name, child in own_names(vars(value)))
    elif is_a(value, (types.MethodType, staticmethod, classmethod)):
        yield from (
            (f"{path}.{name}", getattr(value, name)) for name in ("__func__", "__self__") if hasattr(value, name)
        )
    elif is_a(value, property):
        yield from ((None, function) for function in (value.fget, value.fset, value.fdel))
    elif is_a(value, functools.cached_property):
        yield None, value.func
    elif is_a(value, functools.partial):
        yield from ((f"{path}.{name}", getattr(value, name)) for name in ("func", "args", "keywords"))
    elif is_a(value, type):
        if is_own(value):
            yield from ((f"{path}.{name}", child) for name, child in _of_class(value))
    elif has_own_attributes(value):
        yield from _attributes(path, value)


def has_own_attributes(value: object) -> bool:
    """Whether an object that is no module of torch's has attributes that are the user's to name."""
    if is_a(value, (type, types.FunctionType, types.ModuleType, torch.Tensor)):
        return False
    return is_own(value) or is_a(value, (types.SimpleNamespace, torch.optim.Optimizer))


def items_of(path: str, container: Any, width: int = _WIDTH) -> Iterator[Step]:
    """The first items of a list, tuple, deque or dict, with the paths that lead to them."""
    if is_a(container, dict):
        # An optimizer's state has parameters for keys: to write one takes longer than a training step, and names nothing.
        for key, item in itertools.islice(dict.items(container), width):
            yield (under(path, key) if is_a(key, _KEYS) else None), item
    elif is_a(container, tuple) and is_a(fields := getattr(type(container), "_fields", None), tuple):
        yield from ((f"{path}.{name}", item) for name, item in zip(fields, elements(container)))
    else:
        yield from ((f"{path}[{i}]", item) for i, item in enumerate(itertools.islice(elements(container), width)))


def elements(container: Any) -> Iterator[Any]:
    """The elements of a list, tuple, deque or set, or of a class made of one, whose own ``__iter__`` is not asked."""
    kind = next(one for one in (*_SEQUENCES, set, frozenset) if is_a(container, one))
    return kind.__iter__(container)


def under(path: str, key: Any) -> str | None:
    """The path to what a dict has under a key; None for one that cannot be written."""
    try:
        return f"{path}[{key!r}]"
    except Exception:
        return None


def attributes_of(value: Any) -> Iterator[tuple[str, Any]]:
    """An object's own attributes; of a torch module its buffers too, without what every module has inside."""
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        names = (slots,) if is_a(slots, str) else slots if is_a(slots, (list, tuple, dict, set)) else ()
        for name in tuple(names):
            with contextlib.suppress(AttributeError):
                yield name, object.__getattribute__(value, name)
    inside = _inside_modules() if is_a(value, torch.nn.Module) else frozenset()
    for name, child in list(attributes(value).items()):
        if isinstance(name, str) and name.isidentifier() and name not in inside:
            yield name, child
    yield from tensors_in(value, "_buffers") if inside else ()


@functools.cache
def _inside_modules() -> frozenset[str]:
    """What torch keeps in every module, under names that look like a user's private ones."""
    return frozenset(vars(torch.nn.Module()))


def tensors_in(module: torch.nn.Module, table: str) -> Iterator[tuple[str, Any]]:
    """What a module itself has among its ``_parameters`` or ``_buffers``."""
    yield from ((name, child) for name, child in list(vars(module).get(table, {}).items()) if child is not None)


def _attributes(path: str, value: Any) -> Iterator[Step]:
    yield from ((f"{path}.{name}", child) for name, child in attributes_of(value))
    yield None, type(value)


def _parts(path: str, module: torch.nn.Module) -> Iterator[Step]:
    """All modules below one and all that they hold: a model is one step, however deep it is."""
    for base, part in modules_below(path, module):
        if part is not module:
            yield base, part
        yield from ((join(base, name), parameter) for name, parameter in tensors_in(part, "_parameters"))
        yield from ((f"{base}.{name}", child) for name, child in attributes_of(part))
        for name, table in vars(part).items():
            if name.endswith("_hooks") and is_a(table, dict):
                yield from ((None, hook) for hook in dict.values(table))
        yield None, type(part)


def modules_below(path: str, module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """A module and all below it, with their paths, in the order of ``named_modules``, which a class may have overridden, and
    which asks modules whether they are equal.
    """
    seen: set[int] = set()

    def below(path: str, one: Any) -> Iterator[tuple[str, torch.nn.Module]]:
        if is_a(one, torch.nn.Module) and id(one) not in seen:
            seen.add(id(one))
            yield path, one
            # There is none before its constructor has called torch's own.
            for name, child in list(vars(one).get("_modules", {}).items()):
                yield from below(join(path, str(name)), child)

    return below(path, module)


def _of_class(kind: type) -> Iterator[tuple[str, Any]]:
    """What a class's body defines: also `__call__`, which as a name of a session would be Python's."""
    for name, child in list(vars(kind).items()):
        if is_own_name(name) or is_a(child, (types.FunctionType, staticmethod, classmethod)):
            yield name, child


def _of_function(path: str, function: types.FunctionType) -> Iterator[Step]:
    if not is_own(function):
        return
    for i, cell in enumerate(function.__closure__ or ()):
        with contextlib.suppress(ValueError):  # not filled yet
            yield f"{path}.__closure__[{i}].cell_contents", cell.cell_contents
    yield f"{path}.__defaults__", function.__defaults__
    yield f"{path}.__kwdefaults__", function.__kwdefaults__
    yield from ((f"{path}.{name}", child) for name, child in vars(function).items())


def resolving(namespace: Mapping[str, Any]) -> Mapping[str, Any]:
    """The namespace, and behind it the user's modules by their names: in it every path of the walk can be evaluated."""
    modules = {
        name.partition(".")[0]: sys.modules[name.partition(".")[0]] for name in list(sys.modules) if is_own_module(name)
    }
    return {**modules, **namespace}
