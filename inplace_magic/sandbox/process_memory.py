"""How much memory the process holds for itself: what a copy of it would have to copy once it writes there."""

from __future__ import annotations

import os

_LARGE = 2**29  # bytes
_BESIDE = 3 * 2**28


def own_bytes() -> int:
    """Bytes in memory that no file is behind; 0 where that cannot be told."""
    try:
        with open("/proc/self/statm") as numbers:
            _, resident, shared, *_ = map(int, numbers.read().split())
        return (resident - shared) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def large() -> bool:
    """Whether the session is such that a second model is not made for speed alone."""
    return own_bytes() > _LARGE


def beside() -> bool:
    """Whether the session is small enough for several copies of it to be at work at a time."""
    return own_bytes() <= _BESIDE
