"""What is the user's own: THE predicate, for names, modules, objects.

NOTE [The user's own]. A *name* is his unless Python or IPython put it there (``In``, ``_12``, ``__name__``): ``_h`` is his.
*Code* is his where its file is: a cell, a script, a module of his. An *object* is his where its class is.
"""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard, TypeVar

from .location import kind_of

_T = TypeVar("_T")
_IPYTHON = re.compile(r"In|Out|exit|quit|get_ipython|open|_(?:_?_?|i{0,3}|\d+|i\d+|[iod]h|exit_code)|__\w+__")


def is_own_name(name: object) -> TypeGuard[str]:
    """Whether a name in a namespace is the user's, and none of Python's or IPython's."""
    return isinstance(name, str) and _IPYTHON.fullmatch(name) is None


def own_names(namespace: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The names that are the user's, in the order in which they came to be."""
    # The user's class of dicts may have ``items`` of its own.
    pairs = dict.items(namespace) if is_a(namespace, dict) else namespace.items()
    return ((name, value) for name, value in list(pairs) if is_own_name(name))


def is_own_module(name: str | None) -> bool:
    """Whether what is defined in a module of this name is the user's own code."""
    if name == "__main__":
        return True
    filename = file_of(sys.modules.get(name or ""))
    return filename is not None and kind_of(filename) == "user"


def file_of(module: object) -> str | None:
    """The file that a module was loaded from. What stands for one in ``sys.modules`` may refuse to be asked."""
    try:
        filename = getattr(module, "__file__", None)
    except Exception:
        return None
    return filename if isinstance(filename, str) else None


def is_a(value: Any, kind: type[_T] | tuple[type[_T], ...]) -> TypeGuard[_T]:
    """``isinstance`` by the real type: a proxy's ``__class__`` is the user's code, which may count, lie or raise."""
    return issubclass(type(value), kind)


def attributes(value: object) -> Mapping[str, Any]:
    """``__dict__`` as Python keeps it, without asking the object, whose ``__getattribute__`` may count or raise."""
    for kind in type(value).__mro__:
        descriptor: Any = vars(kind).get("__dict__")
        if isinstance(descriptor, (types.GetSetDescriptorType, types.MemberDescriptorType)):
            found = descriptor.__get__(value)
            return found if is_a(found, (dict, types.MappingProxyType)) else {}
    return {}


def is_own(value: object) -> bool:
    """Whether a class, a function, a module or an instance was defined by the user's own code."""
    if is_a(value, types.ModuleType):
        return is_own_module(vars(value).get("__name__"))
    defined = value if is_a(value, (type, types.FunctionType)) else type(value)
    return is_own_module(getattr(defined, "__module__", None))


def defining_module(value: object) -> types.ModuleType | None:
    """The module that a value is, or in which it or its class was defined; None for what has none of a file's own."""
    if is_a(value, types.ModuleType):
        return value
    name = getattr(value if is_a(value, (type, types.FunctionType)) else type(value), "__module__", None)
    if not isinstance(name, str) or name in ("builtins", "__main__"):
        return None
    return sys.modules.get(name)
