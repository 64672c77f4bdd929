"""Which visitor an object gets, by its type; and which types keep a state that Python cannot see."""

from __future__ import annotations

import array
import functools
import io
import random
import types
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from . import containers, objects, states

if TYPE_CHECKING:
    from .walk import Walk

_FILES = (io.TextIOWrapper, io.BufferedIOBase, io.RawIOBase, io.StringIO)
_SKIPPED_PACKAGES = frozenset(
    [
        "IPython",
        "ipykernel",
        "traitlets",
        "jupyter_client",
        "zmq",
        "tornado",
        "comm",
        "inplace_magic",
        "threading",
        "_thread",
        "asyncio",
        "_asyncio",
        "concurrent",
        "multiprocessing",
        "socket",
        "subprocess",
        "selectors",
        "select",
        "ssl",
        "logging",
        "importlib",
        "_frozen_importlib",
        "_frozen_importlib_external",
        "typing",
        "typing_extensions",
        "abc",
        "_abc",
        "_contextvars",
        "contextvars",
    ]
)
# Types written in C whose objects never change, or whose state is of no concern; by module, less the exceptions.
_HARMLESS_PACKAGES = frozenset(
    [
        "builtins",
        "torch",
        "numpy",
        "re",
        "_thread",
        "datetime",
        "decimal",
        "_decimal",
        "functools",
        "_functools",
        "operator",
        "_operator",
        "types",
        "typing",
        "weakref",
        "_weakref",
        "collections",
        "_collections",
        "zoneinfo",
        "_zoneinfo",
        "uuid",
        "_uuid",
        "fractions",
        "enum",
        "_struct",
        "struct",
        "string",
    ]
)
_STATEFUL = frozenset(["_lru_cache_wrapper", "ScriptModule", "ScriptObject", "ScriptFunction", "CompilationUnit"])

_Visitor = Callable[["Walk", Any], None]
_visitors: weakref.WeakKeyDictionary[type, _Visitor] = weakref.WeakKeyDictionary()


def visitor(kind: type) -> _Visitor:
    try:
        return _visitors[kind]
    except KeyError:
        found = _visitors[kind] = _choose(kind)
        return found


def _choose(kind: type) -> _Visitor:
    for base, visit in _BY_TYPE:
        if issubclass(kind, base):
            return visit if visit in _COMPLETE or not _has_attributes(kind) else _both(visit, objects.visit_attributes)
    package = states.package_of(kind)
    if package in _SKIPPED_PACKAGES:
        return visit_nothing
    if states.has_base(kind, "numpy", "ndarray"):
        return _both(states.visit_array, objects.visit_attributes) if _has_attributes(kind) else states.visit_array
    if package == "numpy" and kind.__name__ in ("Generator", "RandomState"):
        return states.visit_numpy_generator
    if issubclass(kind, _FILES):
        return _both(states.visit_file, objects.visit_attributes)
    if isinstance(getattr(kind, "__next__", None), types.WrapperDescriptorType):
        return states.visit_iterator
    return _both(visit_hidden, objects.visit_attributes) if _hidden(kind) else objects.visit_attributes


def _has_attributes(kind: type) -> bool:
    return kind.__dictoffset__ != 0 or any("__slots__" in vars(base) for base in kind.__mro__)


def _both(first: _Visitor, second: _Visitor) -> _Visitor:
    def visit(walk: Walk, obj: Any) -> None:
        first(walk, obj)
        second(walk, obj)

    return visit


def _hidden(kind: type) -> type | None:
    """The base, if there is one, that keeps its state where Python cannot see it."""
    return next((base for base in kind.__mro__ if _is_opaque(base)), None)


def _is_opaque(base: type) -> bool:
    if base.__name__ in _STATEFUL:
        return True
    parent = base.__base__
    adds_nothing = parent is not None and base.__basicsize__ == parent.__basicsize__
    return not adds_nothing and not _is_python(base) and states.package_of(base) not in _HARMLESS_PACKAGES


def _is_python(kind: type) -> bool:
    """Written in Python: a class statement that adds anything leaves one of these behind."""
    marks = vars(kind)
    return "__slots__" in marks or "__dict__" in marks or any(isinstance(v, types.FunctionType) for v in marks.values())


def visit_nothing(walk: Walk, obj: Any) -> None:
    pass


_PLAIN_NAMES = {"_lru_cache_wrapper": "cached function"}


def visit_hidden(walk: Walk, obj: Any) -> None:
    base = _hidden(type(obj))
    if base is not None:
        name = "native object" if base.__name__.startswith("pybind11") else base.__name__
        walk.decline(f"leads to a {_PLAIN_NAMES.get(name, name)}, whose state cannot be put back")


_BY_TYPE: list[tuple[Any, _Visitor]] = [
    (torch.Tensor, states.visit_tensor),
    (torch.Generator, states.visit_torch_generator),
    ((torch.UntypedStorage, torch.TypedStorage), states.visit_storage),
    (dict, containers.visit_dict),
    (list, containers.visit_list),
    ((tuple, frozenset), containers.visit_items),
    (set, containers.visit_set),
    (deque, containers.visit_deque),
    ((bytearray, array.array), containers.visit_memory),
    (types.MappingProxyType, containers.visit_mapping_proxy),
    (types.FunctionType, objects.visit_function),
    (types.CellType, objects.visit_cell),
    (types.MethodType, objects.visit_method),
    (types.BuiltinMethodType, objects.visit_method),
    (functools.partial, objects.visit_partial),
    (property, objects.visit_property),
    ((staticmethod, classmethod), objects.visit_wrapper),
    (types.ModuleType, objects.visit_module),
    (type, objects.visit_class),
    ((types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType), states.visit_generator),
    ((types.FrameType, types.TracebackType, types.CodeType), visit_nothing),
    (random.Random, states.visit_random),
    (weakref.ref, lambda walk, obj: walk.follow((obj(),))),
    (memoryview, lambda walk, obj: walk.follow((obj.obj,))),
]

# These visitors look at the attributes themselves, or there is a reason not to.
_COMPLETE = (objects.visit_module, objects.visit_class, states.visit_generator, visit_nothing)
