"""The few system calls for a private view of the system that Python's ``os`` does not have (Linux)."""

from __future__ import annotations

import ctypes
import functools
import os
import sys

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x20000, 0x10000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE = 4096, 1 << 14, 1 << 18
_MNT_DETACH = 2
_MOUNT_SETATTR, _AT_FDCWD, _ATTR_RDONLY = 442, -100, 1
_CAPABILITY_VERSION = 0x20080522


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


@functools.cache
def _libc() -> ctypes.CDLL:
    """One for all calls: each would load its functions anew."""
    if sys.platform != "linux":
        raise OSError(38, "this needs Linux")
    return ctypes.CDLL(None, use_errno=True)


def unshare(what: int) -> None:
    """See unshare(2). Raises OSError where it is not allowed."""
    _checked(_libc().unshare(what))


def mount(source: str, target: str, kind: str | None, flags: int = 0, options: str | None = None) -> None:
    """See mount(2). Raises OSError."""
    function = _libc().mount
    function.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
    source_, target_, kind_, options_ = (None if t is None else os.fsencode(t) for t in (source, target, kind, options))
    _checked(function(source_, target_, kind_, flags, options_))


def unmount(target: str) -> None:
    """Take a mount away, and those below it. Raises OSError."""
    _checked(_libc().umount2(os.fsencode(target), _MNT_DETACH))


def make_read_only(target: str) -> None:
    """One mount, not those below it (Linux 5.12). Raises OSError."""
    attributes = (ctypes.c_uint64 * 4)(_ATTR_RDONLY, 0, 0, 0)
    path = ctypes.c_char_p(os.fsencode(target))
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    call(_MOUNT_SETATTR, ctypes.c_int(_AT_FDCWD), path, ctypes.c_uint(0), attributes, size)


def limit_capabilities(mask: int) -> None:
    """Keep no capability but those of ``mask``, see capabilities(7). Raises OSError."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    _checked(_libc().capset(header, (ctypes.c_uint32 * 6)(mask, mask, 0, 0, 0, 0)))


def prctl(option: int, value: int) -> None:
    """See prctl(2), for the options that take one number. Raises OSError."""
    function = _libc().prctl
    function.argtypes = (ctypes.c_int, *(ctypes.c_ulong,) * 4)
    _checked(function(option, value, 0, 0, 0))


def call(number: int, *arguments: object) -> int:
    """A system call by its number; from 424 on they are the same on every architecture. Raises OSError."""
    function = _libc().syscall
    function.restype = ctypes.c_long
    return _checked(function(ctypes.c_long(number), *arguments))
