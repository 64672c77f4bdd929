"""The memory of a process that is copied over and over, in pages of 2 MB: to copy the table of small ones takes longest.

Without Linux 6.1 or later nothing happens.
"""

from __future__ import annotations

import ctypes
import os

_SIZE = 2**21
_HUGEPAGE, _COLLAPSE = 14, 25  # madvise(2)
_GROWN = 2**26  # bytes of which it is worth while to look again
_page = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_seen = 0


def use() -> None:
    """What this process has written by now is put together, again where it has grown."""
    global _seen
    try:
        with open("/proc/self/statm") as file:
            held = int(file.read().split()[1]) * _page
        if held < _seen + _GROWN:
            return
        _seen = held
        madvise = ctypes.CDLL(None).madvise
        madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for start, size in _writable():
            madvise(start, size, _HUGEPAGE)
            for at in range(
                start, start + size, _SIZE
            ):  # one by one: a stretch that cannot be ends what comes after it
                madvise(at, _SIZE, _COLLAPSE)
    except (OSError, AttributeError):
        return


def _writable() -> list[tuple[int, int]]:
    """Address and size of what is this process's own, in whole pages of 2 MB."""
    found = []
    with open("/proc/self/maps") as file:
        for line in file:
            span, access, _, _, inode, *_ = line.split()
            low, high = (int(end, 16) for end in span.split("-"))
            start, end = -(-low // _SIZE) * _SIZE, high // _SIZE * _SIZE
            if access == "rw-p" and inode == "0" and start < end and "[stack" not in line:
                found.append((start, end - start))
    return found
