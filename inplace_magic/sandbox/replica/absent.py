"""What stands in a replica for what could not be taken there."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

from ...message import message
from ...source.location import kind_of


class NotTaken(BaseException):
    """Work came upon something that was left in the session. A BaseException, so that ``except Exception`` does not
    swallow it. Raised while pickling as well, where it ends the pickling of one name only."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.clause = message("left_behind", what=what)


class Absent:
    """Bound to a name whose object stayed behind: the user's code may hold it and pass it on, but not use it."""

    def __init__(self, what: str) -> None:
        self.__dict__["_what"] = what

    def __getattr__(self, name: str) -> Any:
        if kind_of(sys._getframe(1).f_code.co_filename) == "user":
            _refuse(self)
        raise AttributeError(name)  # a walk of ours, or of a library's, which asks what this is

    def __setattr__(self, name: str, value: Any) -> None:
        _refuse(self)


def _refuse(absent: Absent, *args: Any, **kwargs: Any) -> NoReturn:
    raise NotTaken(absent.__dict__["_what"])


# Operators are looked up on the type.
for _name in [
    "call",
    "iter",
    "next",
    "len",
    "bool",
    "getitem",
    "setitem",
    "delitem",
    "contains",
    "enter",
    "exit",
    "await",
    "aiter",
    "anext",
    "index",
    "int",
    "float",
    "add",
    "radd",
    "sub",
    "rsub",
    "mul",
    "rmul",
    "truediv",
    "rtruediv",
    "matmul",
    "rmatmul",
    "pow",
    "rpow",
    "neg",
    "lt",
    "le",
    "gt",
    "ge",
    "iadd",
    "isub",
    "imul",
    "itruediv",
]:
    setattr(Absent, f"__{_name}__", _refuse)
