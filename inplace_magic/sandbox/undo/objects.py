"""How functions, classes, modules and objects with attributes are noted and put back."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
import types
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .walk import Walk


def visit_attributes(walk: Walk, obj: Any) -> None:
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


def visit_function(walk: Walk, obj: types.FunctionType) -> None:
    state = (obj.__code__, obj.__defaults__, obj.__kwdefaults__)
    walk.note(_restore_function, obj, state)
    walk.follow((obj.__defaults__, obj.__kwdefaults__, *(obj.__closure__ or ())))
    if obj.__globals__ is walk.namespace or is_own_module(obj.__module__):
        walk.use_names(obj.__code__, obj.__globals__)


def _restore_function(obj: types.FunctionType, state: tuple[Any, ...]) -> None:
    for name, value in zip(("__code__", "__defaults__", "__kwdefaults__"), state):
        if getattr(obj, name) is not value:
            setattr(obj, name, value)


_EMPTY = object()


def visit_cell(walk: Walk, obj: types.CellType) -> None:
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


def visit_method(walk: Walk, obj: Any) -> None:
    walk.follow((obj.__self__, getattr(obj, "__func__", None)))


def visit_partial(walk: Walk, obj: Any) -> None:
    walk.follow((obj.func, obj.args, obj.keywords))


def visit_property(walk: Walk, obj: property) -> None:
    walk.follow((obj.fget, obj.fset, obj.fdel))


def visit_wrapper(walk: Walk, obj: Any) -> None:
    walk.follow((obj.__func__,))


_CLASS_INTERNALS = frozenset(("__dict__", "__weakref__", "__annotations_cache__", "__annotate_func__"))


def visit_class(walk: Walk, obj: type) -> None:
    if not is_own_module(obj.__module__):
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


def visit_module(walk: Walk, obj: types.ModuleType) -> None:
    if is_own_module(obj.__name__):
        walk.follow((vars(obj),))


def is_own_module(name: Any) -> bool:
    """The person's own: the notebook itself, or a file that was not installed."""
    if name == "__main__":
        return True
    file = getattr(sys.modules.get(name), "__file__", None) if isinstance(name, str) else None
    return file is not None and not os.path.abspath(file).startswith(_library_folders())


def _library_folders() -> tuple[str, ...]:
    if not _folders:
        paths = {sysconfig.get_paths()[k] for k in ("stdlib", "platstdlib", "purelib", "platlib")}
        paths |= {site.getusersitepackages(), *site.getsitepackages(), os.path.dirname(torch.__file__)}
        paths.add(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))  # this very package
        _folders.extend(sorted(os.path.abspath(p) + os.sep for p in paths))
    return tuple(_folders)


_folders: list[str] = []
