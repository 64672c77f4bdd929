"""Goes over everything the session's names lead to, once, and notes how each object was.

The walk is iterative and linear in the number of objects. It has two passes: first what the code that will run can reach
by name, then the rest of the namespace. Something that cannot be put back is a reason to decline in the first pass only.
"""

from __future__ import annotations

import array
import functools
import io
import os
import random
import site
import sys
import sysconfig
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from .tensors import Tensors

MAX_OBJECTS = 1_000_000
"""Objects looked at; with more, the rerun is declined. About two seconds' worth."""

MAX_BYTES = 256 * 2**20
"""Copied of numpy arrays and other plain memory in all; with more, the rerun is declined."""

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
_ATOMS = frozenset((int, float, complex, bool, str, bytes, type(None), type(...), type(NotImplemented), range, slice))
_ANY_NAME = frozenset(["globals", "locals", "vars", "eval", "exec", "dir", "get_ipython", "__import__", "__dict__"])
_FILES = (io.TextIOWrapper, io.BufferedIOBase, io.RawIOBase, io.StringIO)

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

    def run(self, code: Iterable[types.CodeType], extra_roots: Iterable[Any]) -> None:
        code = list(code)
        self.note(restore_dict, self.namespace, list(self.namespace.items()))
        names = _names(code)
        everything = not code or not names.isdisjoint(_ANY_NAME)
        reachable = [n for n in self.namespace if everything or n in names]
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
                _visitor(kind)(self, obj)
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


# Which visitor for which type.

_Visitor = Callable[[Walk, Any], None]
_visitors: weakref.WeakKeyDictionary[type, _Visitor] = weakref.WeakKeyDictionary()


def _visitor(kind: type) -> _Visitor:
    try:
        return _visitors[kind]
    except KeyError:
        visitor = _visitors[kind] = _choose(kind)
        return visitor


def _choose(kind: type) -> _Visitor:
    for base, visit in _BY_TYPE:
        if issubclass(kind, base):
            return visit if visit in _COMPLETE or not _has_attributes(kind) else _both(visit, _visit_attributes)
    package = _package(kind)
    if package in _SKIPPED_PACKAGES:
        return _visit_nothing
    if _has_base(kind, "numpy", "ndarray"):
        return _both(_visit_array, _visit_attributes) if _has_attributes(kind) else _visit_array
    if package == "numpy" and kind.__name__ in ("Generator", "RandomState"):
        return _visit_numpy_generator
    if issubclass(kind, _FILES):
        return _both(_visit_file, _visit_attributes)
    if isinstance(getattr(kind, "__next__", None), types.WrapperDescriptorType):
        return _visit_iterator
    return _both(_visit_hidden, _visit_attributes) if _hidden(kind) else _visit_attributes


def _has_attributes(kind: type) -> bool:
    return kind.__dictoffset__ != 0 or any("__slots__" in vars(base) for base in kind.__mro__)


def _both(first: _Visitor, second: _Visitor) -> _Visitor:
    def visit(walk: Walk, obj: Any) -> None:
        first(walk, obj)
        second(walk, obj)

    return visit


def _package(kind: type) -> str:
    return str(getattr(kind, "__module__", "")).partition(".")[0]


def _has_base(kind: type, package: str, name: str) -> bool:
    return any(base.__name__ == name and _package(base) == package for base in kind.__mro__)


def _hidden(kind: type) -> type | None:
    """The base, if there is one, that keeps its state where Python cannot see it."""
    return next((base for base in kind.__mro__ if _is_opaque(base)), None)


def _is_opaque(base: type) -> bool:
    if base.__name__ in _STATEFUL:
        return True
    parent = base.__base__
    adds_nothing = parent is not None and base.__basicsize__ == parent.__basicsize__
    return not adds_nothing and not _is_python(base) and _package(base) not in _HARMLESS_PACKAGES


def _is_python(kind: type) -> bool:
    """Written in Python: a class statement that adds anything leaves one of these behind."""
    marks = vars(kind)
    return "__slots__" in marks or "__dict__" in marks or any(isinstance(v, types.FunctionType) for v in marks.values())


def _visit_nothing(walk: Walk, obj: Any) -> None:
    pass


_PLAIN_NAMES = {"_lru_cache_wrapper": "cached function"}


def _visit_hidden(walk: Walk, obj: Any) -> None:
    base = _hidden(type(obj))
    if base is not None:
        name = "native object" if base.__name__.startswith("pybind11") else base.__name__
        walk.decline(f"leads to a {_PLAIN_NAMES.get(name, name)}, whose state cannot be put back")


# Containers.


def _visit_dict(walk: Walk, obj: dict[Any, Any]) -> None:
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


def _visit_list(walk: Walk, obj: list[Any]) -> None:
    items = obj[:] if type(obj) is list else list.__getitem__(obj, slice(None))
    walk.note(restore_list, obj, items)
    walk.follow(items)


def restore_list(obj: list[Any], items: list[Any]) -> None:
    now = list.__getitem__(obj, slice(None))
    if len(now) != len(items) or any(a is not b for a, b in zip(now, items)):
        list.__setitem__(obj, slice(None), items)


def _visit_set(walk: Walk, obj: set[Any]) -> None:
    items = list(set.__iter__(obj))
    walk.note(_restore_set, obj, items)
    walk.follow(items)


def _restore_set(obj: set[Any], items: list[Any]) -> None:
    if {id(item) for item in obj} != {id(item) for item in items}:
        set.clear(obj)
        set.update(obj, items)


def _visit_deque(walk: Walk, obj: deque[Any]) -> None:
    items = list(deque.__iter__(obj))
    walk.note(_restore_deque, obj, items)
    walk.follow(items)


def _restore_deque(obj: deque[Any], items: list[Any]) -> None:
    now = list(obj)
    if len(now) != len(items) or any(a is not b for a, b in zip(now, items)):
        deque.clear(obj)
        deque.extend(obj, items)


def _visit_items(walk: Walk, obj: Any) -> None:
    walk.follow(tuple.__iter__(obj) if isinstance(obj, tuple) else frozenset.__iter__(obj))


def _visit_memory(walk: Walk, obj: Any) -> None:
    if walk.has_room(len(obj)):
        walk.note(_restore_memory, obj, obj[:])


def _restore_memory(obj: Any, contents: Any) -> None:
    if obj != contents:
        obj[:] = contents


def _visit_mapping_proxy(walk: Walk, obj: Any) -> None:
    walk.follow(obj.values())


# Code and classes.


def _visit_function(walk: Walk, obj: types.FunctionType) -> None:
    state = (obj.__code__, obj.__defaults__, obj.__kwdefaults__)
    walk.note(_restore_function, obj, state)
    walk.follow((obj.__defaults__, obj.__kwdefaults__, *(obj.__closure__ or ())))
    if obj.__globals__ is walk.namespace or _is_own_module(obj.__module__):
        walk.use_names(obj.__code__, obj.__globals__)


def _restore_function(obj: types.FunctionType, state: tuple[Any, ...]) -> None:
    for name, value in zip(("__code__", "__defaults__", "__kwdefaults__"), state):
        if getattr(obj, name) is not value:
            setattr(obj, name, value)


_EMPTY = object()


def _visit_cell(walk: Walk, obj: types.CellType) -> None:
    contents = _contents(obj)
    walk.note(_restore_cell, obj, contents)
    walk.follow((contents,))


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _EMPTY


def _restore_cell(obj: types.CellType, contents: Any) -> None:
    if contents is _EMPTY:
        if _contents(obj) is not _EMPTY:
            del obj.cell_contents
    elif _contents(obj) is not contents:
        obj.cell_contents = contents


def _visit_method(walk: Walk, obj: Any) -> None:
    walk.follow((obj.__self__, getattr(obj, "__func__", None)))


def _visit_partial(walk: Walk, obj: Any) -> None:
    walk.follow((obj.func, obj.args, obj.keywords))


def _visit_property(walk: Walk, obj: property) -> None:
    walk.follow((obj.fget, obj.fset, obj.fdel))


def _visit_wrapper(walk: Walk, obj: Any) -> None:
    walk.follow((obj.__func__,))


_CLASS_INTERNALS = frozenset(("__dict__", "__weakref__", "__annotations_cache__", "__annotate_func__"))


def _visit_class(walk: Walk, obj: type) -> None:
    if not _is_own_module(obj.__module__):
        return
    items = {k: v for k, v in vars(obj).items() if k not in _CLASS_INTERNALS}
    walk.note(_restore_class, obj, items, obj.__bases__)
    walk.follow(items.values())
    walk.follow(obj.__bases__)


def _restore_class(obj: type, items: dict[str, Any], bases: tuple[type, ...]) -> None:
    if obj.__bases__ != bases:
        obj.__bases__ = bases
    now = {k: v for k, v in vars(obj).items() if k not in _CLASS_INTERNALS}
    for name in now.keys() - items.keys():
        type.__delattr__(obj, name)
    for name, value in items.items():
        if now.get(name, _EMPTY) is not value:
            type.__setattr__(obj, name, value)


def _visit_module(walk: Walk, obj: types.ModuleType) -> None:
    if _is_own_module(obj.__name__):
        walk.follow((vars(obj),))


def _is_own_module(name: Any) -> bool:
    """The person's own: the notebook itself, or a file that was not installed."""
    if name == "__main__":
        return True
    file = getattr(sys.modules.get(name), "__file__", None) if isinstance(name, str) else None
    return file is not None and not os.path.abspath(file).startswith(_library_folders())


def _library_folders() -> tuple[str, ...]:
    if not _folders:
        paths = {sysconfig.get_paths()[k] for k in ("stdlib", "platstdlib", "purelib", "platlib")}
        paths |= {os.path.dirname(os.path.dirname(p)) for p in (__file__, torch.__file__)}
        paths |= {site.getusersitepackages(), *site.getsitepackages(), os.path.dirname(os.path.dirname(__file__))}
        _folders.extend(sorted(os.path.abspath(p) + os.sep for p in paths))
    return tuple(_folders)


_folders: list[str] = []


# Objects with attributes.


def _visit_attributes(walk: Walk, obj: Any) -> None:
    kind = type(obj)
    try:
        attributes = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        attributes = None
    if type(attributes) is dict:
        walk.note(_restore_class_and_dict, obj, kind, attributes)
        walk.follow((attributes,))
    for slot in _slots(kind):
        value = _slot_value(slot, obj)
        walk.note(_restore_slot, obj, slot, value)
        walk.follow((value,))
    walk.follow((kind,))
    if isinstance(obj, BaseException):
        walk.follow((obj.args,))


def _restore_class_and_dict(obj: Any, kind: type, attributes: dict[str, Any]) -> None:
    if type(obj) is not kind:
        object.__setattr__(obj, "__class__", kind)
    if object.__getattribute__(obj, "__dict__") is not attributes:
        object.__setattr__(obj, "__dict__", attributes)


def _slots(kind: type) -> list[Any]:
    return [
        member
        for base in kind.__mro__
        if "__slots__" in vars(base)
        for member in vars(base).values()
        if isinstance(member, types.MemberDescriptorType)
    ]


def _slot_value(slot: Any, obj: Any) -> Any:
    try:
        return slot.__get__(obj)
    except AttributeError:
        return _EMPTY


def _restore_slot(obj: Any, slot: Any, value: Any) -> None:
    now = _slot_value(slot, obj)
    if value is _EMPTY and now is not _EMPTY:
        slot.__delete__(obj)
    elif now is not value:
        slot.__set__(obj, value)


# Things with a state that is asked for.


def _visit_array(walk: Walk, obj: Any) -> None:
    walk.note(_restore_layout, obj, obj.flags.writeable, obj.dtype, obj.shape, obj.strides)
    if obj.base is not None:
        walk.follow((obj.base,))
    if not obj.flags.writeable or _has_base(type(obj.base), "numpy", "ndarray"):
        return
    if type(obj).__name__ == "memmap":
        walk.decline("is mapped to a file and can be written")
    elif walk.has_room(obj.nbytes):
        walk.note(_restore_array, obj, obj.copy(order="K"))
        if obj.dtype.hasobject:
            walk.follow(obj.ravel().tolist())


def _restore_layout(obj: Any, writeable: bool, *layout: Any) -> None:
    if obj.flags.writeable != writeable:
        obj.flags.writeable = writeable
    for name, value in zip(("dtype", "shape", "strides"), layout):
        if getattr(obj, name) != value:
            setattr(obj, name, value)


def _restore_array(obj: Any, saved: Any) -> None:
    obj[...] = saved


def _visit_numpy_generator(walk: Walk, obj: Any) -> None:
    bits = obj.bit_generator if hasattr(obj, "bit_generator") else obj._bit_generator
    walk.note(setattr, bits, "state", bits.state)


def _visit_random(walk: Walk, obj: random.Random) -> None:
    if not isinstance(obj, random.SystemRandom):  # which has none
        walk.note(obj.setstate, obj.getstate())


def _visit_torch_generator(walk: Walk, obj: torch.Generator) -> None:
    walk.note(obj.set_state, obj.get_state())


def _visit_tensor(walk: Walk, obj: torch.Tensor) -> None:
    walk.follow(walk.tensors.learn(obj))


def _visit_storage(walk: Walk, obj: Any) -> None:
    tensor = torch.empty(0, dtype=torch.uint8, device=obj.device)
    tensor.set_(obj if isinstance(obj, torch.UntypedStorage) else obj.untyped())
    walk.follow((tensor,))


def _visit_file(walk: Walk, obj: Any) -> None:
    if obj.closed:
        return
    if isinstance(obj, io.StringIO | io.BytesIO):
        contents = obj.getvalue()
        if walk.has_room(len(contents)):
            walk.note(_restore_buffer, obj, contents, obj.tell())
        return
    if any(obj is s for s in (sys.stdout, sys.stderr, sys.stdin, sys.__stdout__, sys.__stderr__, sys.__stdin__)):
        return
    if obj.writable():
        walk.decline(f"is the file {str(getattr(obj, 'name', '?'))!r}, open to be written")
    elif not obj.seekable():
        walk.decline("is a stream that cannot be read twice")
    else:
        _visit_position(walk, obj)


def _visit_position(walk: Walk, obj: Any) -> None:
    try:
        position = obj.tell()
    except OSError:  # in the middle of an iteration over its lines
        walk.decline("is a file in the middle of being read")
    else:
        walk.note(obj.seek, position)


def _restore_buffer(obj: Any, contents: Any, position: int) -> None:
    if obj.getvalue() != contents:
        obj.seek(0)
        obj.truncate()
        obj.write(contents)
    obj.seek(position)


def _visit_generator(walk: Walk, obj: Any) -> None:
    frame = next((getattr(obj, a) for a in ("gi_frame", "cr_frame", "ag_frame") if hasattr(obj, a)), None)
    if frame is not None:
        walk.decline(f"leads to the generator {obj.__name__!r}, which would be used up")


def _visit_iterator(walk: Walk, obj: Any) -> None:
    """An iterator at its end has nothing to lose; any other may let go of its source, which no state brings back."""
    hint = getattr(obj, "__length_hint__", None)
    if hint is None or hint() != 0:
        walk.decline(f"leads to a {type(obj).__name__}, which would be used up")


_BY_TYPE: list[tuple[Any, _Visitor]] = [
    (torch.Tensor, _visit_tensor),
    (torch.Generator, _visit_torch_generator),
    ((torch.UntypedStorage, torch.TypedStorage), _visit_storage),
    (dict, _visit_dict),
    (list, _visit_list),
    ((tuple, frozenset), _visit_items),
    (set, _visit_set),
    (deque, _visit_deque),
    ((bytearray, array.array), _visit_memory),
    (types.MappingProxyType, _visit_mapping_proxy),
    (types.FunctionType, _visit_function),
    (types.CellType, _visit_cell),
    (types.MethodType, _visit_method),
    (types.BuiltinMethodType, _visit_method),
    (functools.partial, _visit_partial),
    (property, _visit_property),
    ((staticmethod, classmethod), _visit_wrapper),
    (types.ModuleType, _visit_module),
    (type, _visit_class),
    ((types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType), _visit_generator),
    ((types.FrameType, types.TracebackType, types.CodeType), _visit_nothing),
    (random.Random, _visit_random),
    (weakref.ref, lambda walk, obj: walk.follow((obj(),))),
    (memoryview, lambda walk, obj: walk.follow((obj.obj,))),
]

# These visitors look at the attributes themselves, or there is a reason not to.
_COMPLETE = (_visit_module, _visit_class, _visit_generator, _visit_nothing)


def restore(restorers: Iterable[Restorer]) -> Iterator[str]:
    """Put every noted object back; yields what did not go back, in words."""
    for put_back, how_it_was in restorers:
        try:
            put_back(*how_it_was)
        except Exception as e:
            yield f"{type(how_it_was[0]).__name__}: {e}"
