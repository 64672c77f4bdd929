"""Functions that were compiled apart from the file they stand in, and where in that file they are.

``%autoreload`` (IPython 9) compiles a function that has changed from a text of its own making, so that the lines and the
qualified name of its code are not those of the file. Compiled with its file it does the same, instruction by instruction:
that code says where each of them stands.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterable, Iterator

_TAKES_MORE = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
_known: dict[int, tuple[types.CodeType, types.CodeType]] = {}  # by identity; the first of the two is kept for that


def does(code: types.CodeType) -> tuple[object, ...]:
    """What tells code apart that does something else, wherever it stands."""
    constants = tuple(does(c) if isinstance(c, types.CodeType) else (type(c), c) for c in code.co_consts)
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    takes = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & _TAKES_MORE
    return code.co_code, code.co_exceptiontable, constants, names, takes  # `try` is in the table alone, from 3.11 on


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object with all those inside of it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def in_file(code: types.CodeType) -> types.CodeType:
    """The code that a file has for this one; mostly itself."""
    known = _known.get(id(code))
    return code if known is None else known[1]


def find(code: types.CodeType, in_text: Iterable[types.CodeType], name: str | None = None) -> bool:
    """Whether exactly one function of a text is this one; if so, `in_file` gives it from now on.

    ``name``: the qualified name of the function, where it is known; that of the code may be made up.
    """
    alike = [one for one in in_text if one.co_name == code.co_name and does(one) == does(code)]
    if len(alike) > 1:
        alike = [one for one in alike if one.co_qualname == (name or in_file(code).co_qualname)]
    if len(alike) != 1:
        _known.pop(id(code), None)
        return False
    _note(code, alike[0])
    return True


def _note(code: types.CodeType, other: types.CodeType) -> None:
    _known[id(code)] = code, other
    for inner, others in zip(code.co_consts, other.co_consts):
        if isinstance(inner, types.CodeType) and isinstance(others, types.CodeType):
            _note(inner, others)
