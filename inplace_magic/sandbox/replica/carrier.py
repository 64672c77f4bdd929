"""Where the bytes of tensors travel: a file in memory that the replica maps, so that nobody holds them a second time."""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import NamedTuple

_ALIGNED = 4096


class Extent(NamedTuple):
    """A stretch of the carrier, in bytes."""

    start: int
    size: int


class Carrier:
    """A file without a name, or, where the system has none, one that is deleted with this object."""

    def __init__(self, descriptor: int | None = None) -> None:
        """``descriptor``: of a carrier that another process has made."""
        self.descriptor = _new() if descriptor is None else descriptor
        self._begin = self._end = os.fstat(self.descriptor).st_size

    def append(self, data: memoryview) -> Extent:
        """Raises OSError where there is no memory for it."""
        extent = Extent(self._end, len(data))
        written = 0
        while written < extent.size:
            written += os.pwrite(self.descriptor, data[written : written + 2**30], extent.start + written)
        self._end += -(-extent.size // _ALIGNED) * _ALIGNED
        return extent

    def follow(self) -> None:
        """Takes note of what another process has appended."""
        self._begin = self._end = -(-os.fstat(self.descriptor).st_size // _ALIGNED) * _ALIGNED

    def rewind(self) -> None:
        """Takes back what this object has appended."""
        self._end = self._begin

    def mapped(self) -> mmap.mmap:
        """All of it; what is written there is one's own."""
        size = os.fstat(self.descriptor).st_size
        return mmap.mmap(self.descriptor, size, access=mmap.ACCESS_COPY)

    def close(self) -> None:
        os.close(self.descriptor)


def _new() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("inplace_magic")
    descriptor, path = tempfile.mkstemp(prefix="inplace_magic")
    try:
        os.unlink(path)
    except OSError:  # Windows keeps an open file; it goes with the folder for such files
        pass
    return descriptor
