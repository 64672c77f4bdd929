"""Which names of the session some code reads, as far as its bytecode tells."""

from __future__ import annotations

import dis
import re
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_READS = {"LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS", "LOAD_CLASSDEREF", "DELETE_NAME", "DELETE_GLOBAL"}
_WORD = re.compile(r"[^\W\d]\w*")


def names_read(codes: Iterable[types.CodeType], namespace: Mapping[str, Any]) -> tuple[str, ...]:
    """In the order of the namespace, by which objects are named. Functions that are called read more; see ``pickling``."""
    found: set[str] = set()
    for code in codes:
        found.update(_names(code))
    return tuple(name for name in namespace if name in found)


def _names(code: types.CodeType) -> Iterator[str]:
    strings: list[str] = []
    reads: set[str] = set()
    for one in _nested(code):
        reads.update(i.argval for i in dis.get_instructions(one) if i.opname in _READS)
        strings += [constant for constant in one.co_consts if isinstance(constant, str)]
    yield from reads
    if reads & {"get_ipython", "eval", "exec"}:  # code in a string: a magic's, for one
        for text in strings:
            yield from _WORD.findall(text)


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)
