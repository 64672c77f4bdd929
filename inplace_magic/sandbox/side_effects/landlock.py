"""What this process may do from now on, kept by the kernel (Linux 5.13 or later, no privilege needed): Landlock.

A write outside of the folders that are named fails in any code, also in a library that tells Python nothing. It cannot be
taken back, and the process's children inherit it. See https://docs.kernel.org/userspace-api/landlock.html
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterable

from . import kernel

__all__ = ["restrict"]

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_ASKED, _BENEATH = 1, 1
_PR_SET_NO_NEW_PRIVS = 38
_WRITE_FILE = 1 << 1
_CHANGES = _WRITE_FILE | sum(1 << n for n in range(4, 13))  # remove a folder or a file, make anything
_REFER, _TRUNCATE = 1 << 13, 1 << 14  # of versions 2 and 3
_CONNECTIONS = 0b11  # bind and connect by TCP, of version 4
_SCOPES = 0b11  # abstract sockets and signals stay among the processes restricted, of version 6


class _Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def restrict(folders: Iterable[str] | None) -> None:
    """Lets this process write below ``folders`` only (None: anywhere), connect to nobody, and signal only its children.

    To be called as long as the process has one thread. Raises OSError where the kernel has no Landlock.
    """
    version = kernel.call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_ASKED))
    changes = _CHANGES | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    rules = _Ruleset(
        0 if folders is None else changes, _CONNECTIONS if version >= 4 else 0, _SCOPES if version >= 6 else 0
    )
    size = 8 if version < 4 else 16 if version < 6 else 24
    if not (rules.files or rules.network or rules.scoped):
        return
    ruleset = kernel.call(_CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(size), ctypes.c_uint32(0))
    try:
        for folder in folders or ():
            _allow(ruleset, folder, changes)
        for folder in ("/dev", "/proc") if folders is not None else ():
            _allow(ruleset, folder, _WRITE_FILE | (changes & _TRUNCATE))
        kernel.prctl(_PR_SET_NO_NEW_PRIVS, 1)
        kernel.call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, folder: str, what: int) -> None:
    with contextlib.suppress(OSError):  # there is no such folder
        descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC)
        try:
            rule = _Beneath(what, descriptor)
            pointer = ctypes.byref(rule)
            kernel.call(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_BENEATH), pointer, ctypes.c_uint32(0))
        finally:
            os.close(descriptor)
