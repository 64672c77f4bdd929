"""How much memory the process holds for itself: what a copy of it would have to copy once it writes there."""

from __future__ import annotations

import os
import sys

from .may_fork import devices_in_use

_LARGE = 2**29  # bytes
_BESIDE = 3 * 2**28
_carried = 0


def own_bytes() -> int:
    """Bytes that no file is behind, on the host and on a device, with those that were brought along; 0 where that cannot
    be told."""
    return _on_host() + _on_device() + _carried


def bring(size: int) -> None:
    """Tells of bytes of a session that this process maps from a file: it has to copy them as well once it writes there."""
    global _carried
    _carried = size


def _on_host() -> int:
    try:
        with open("/proc/self/statm") as numbers:
            _, resident, shared, *_ = map(int, numbers.read().split())
        return (resident - shared) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def _on_device() -> int:
    found = 0
    for kind in devices_in_use():
        module = getattr(sys.modules["torch"], kind, None)
        found += getattr(module, "memory_allocated", int)()
    return found


def large() -> bool:
    """Whether the session is such that a second model is not made for speed alone."""
    return own_bytes() > _LARGE


def beside() -> bool:
    """Whether the session is small enough for several copies of it to be at work at a time."""
    return own_bytes() <= _BESIDE
