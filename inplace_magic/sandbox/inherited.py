"""Cuts what a forked child still has in common with its parent: open files, pipes, sockets, shared memory.

A fork copies memory, but an open file is one and the same in both: reading on in the child moves the parent's position,
writing writes. So is memory that was mapped to be shared (``share_memory_()``, a writable ``np.memmap``,
``multiprocessing.Array``): a tensor in it that the child changes is changed in the session.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import stat
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

_COPIED_AT_MOST = 16 * 2**20
_DEVICES = ("/dev/shm/", "/dev/zero")  # the others are doors to hardware and are left alone


Reopen = Callable[[str, int], int]


def set_apart(keep: Collection[int], reopen: Reopen | None = None) -> str | None:
    """To be called in a forked child, once, before anything of the session runs; None, or why it could not be done.

    ``keep``: descriptors that are left as they are, next to the standard three.
    ``reopen`` opens a path with some flags so that what is written stays with the child; without it, nothing is written.
    """
    failure = _own_memory() if sys.platform == "linux" else _shares_tensors()
    _own_descriptors({0, 1, 2, *keep}, reopen)
    return failure


# Memory.


class _Mapping(NamedTuple):
    start: int
    size: int
    offset: int
    inode: int
    path: str


def _own_memory() -> str | None:
    """Put a private mapping in the place of each shared one that can be written."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
    with open("/proc/self/maps") as lines:
        shared = list(_shared(lines))
    return next((why for mapping in shared if (why := _replace(libc, mapping)) is not None), None)


def _shared(lines: Iterable[str]) -> Iterator[_Mapping]:
    for line in lines:
        span, mode, offset, _, inode, *rest = line.split(maxsplit=5)
        path = rest[0].rstrip("\n") if rest else ""
        outside = path.startswith("/dev/") and not path.startswith(_DEVICES)
        if mode[1] == "w" and mode[3] == "s" and not outside and not path.startswith("anon_inode:"):
            start, end = (int(number, 16) for number in span.split("-"))
            yield _Mapping(start, end - start, int(offset, 16), int(inode), path)


def _replace(libc: ctypes.CDLL, mapping: _Mapping) -> str | None:
    """From the file itself if it is still to be found, which costs nothing, else from a copy."""
    fixed = mmap.MAP_PRIVATE | 0x10  # MAP_FIXED: in the very same place
    access = mmap.PROT_READ | mmap.PROT_WRITE
    descriptor = _open_same(mapping)
    if descriptor is not None:
        place = libc.mmap(mapping.start, mapping.size, access, fixed, descriptor, mapping.offset)
        os.close(descriptor)
        return None if place == mapping.start else "memory that other processes share could not be set apart"
    contents = _read(mapping)
    if contents is None:
        return "memory that other processes share could not be set apart"
    place = libc.mmap(mapping.start, mapping.size, access, fixed | mmap.MAP_ANONYMOUS, -1, 0)
    if place != mapping.start:
        return "memory that other processes share could not be set apart"
    ctypes.memmove(mapping.start, contents, len(contents))
    return None


def _open_same(mapping: _Mapping) -> int | None:
    try:
        descriptor = os.open(mapping.path, os.O_RDONLY)
    except (OSError, ValueError):
        return None
    if os.fstat(descriptor).st_ino == mapping.inode:
        return descriptor
    os.close(descriptor)
    return None


def _read(mapping: _Mapping) -> bytes | None:
    """By way of the file system: a page without a file behind it is then an error and not a crash."""
    try:
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            memory.seek(mapping.start)
            return memory.read(mapping.size)
    except (OSError, OverflowError, MemoryError):
        return None


def _shares_tensors() -> str | None:
    """Where mappings cannot be listed: say so if torch has put a tensor into one."""
    reductions = sys.modules.get("torch.multiprocessing.reductions")
    if reductions is not None and len(reductions.shared_cache):
        return "a tensor lies in memory that other processes share"
    return None


# Descriptors.


def _own_descriptors(keep: Collection[int], reopen: Reopen | None) -> None:
    folder = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    for descriptor in [int(name) for name in os.listdir(folder)]:
        if descriptor not in keep:
            try:
                _own(descriptor, f"{folder}/{descriptor}", reopen)
            except OSError:  # the one that listed the folder, or a file that may not be opened again
                _replace_by_nothing(descriptor)


def _own(descriptor: int, link: str, reopen: Reopen | None) -> None:
    import fcntl

    kind = os.fstat(descriptor).st_mode
    if os.isatty(descriptor):  # a terminal, or what hangs on a serial line
        _replace_by_nothing(descriptor)
        return
    if stat.S_ISDIR(kind) or stat.S_ISCHR(kind):
        return
    access = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
    if stat.S_ISREG(kind) and access == os.O_RDONLY:
        _reopen(descriptor, link)
    elif stat.S_ISREG(kind) and reopen is not None and _reopen_to_write(descriptor, link, reopen):
        return
    elif stat.S_ISREG(kind) and access == os.O_RDWR and os.fstat(descriptor).st_size <= _COPIED_AT_MOST:
        _copy(descriptor)
    else:
        _replace_by_nothing(descriptor)


def _reopen(descriptor: int, link: str) -> None:
    """The same file with a position of one's own."""
    import fcntl

    if hasattr(fcntl, "F_GETPATH"):  # macOS, where opening the link only duplicates
        link = os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    _put(os.open(link, os.O_RDONLY), descriptor, os.lseek(descriptor, 0, os.SEEK_CUR))


def _reopen_to_write(descriptor: int, link: str, reopen: Reopen) -> bool:
    """The child's own version of the file, at the same position; what it writes there it can read by the file's name."""
    import fcntl

    seen = os.fstat(descriptor)
    if seen.st_size > _COPIED_AT_MOST or not os.path.islink(link):
        return False
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL) & (os.O_ACCMODE | os.O_APPEND)
    try:
        path = os.readlink(link)
        if os.stat(path).st_ino != seen.st_ino:  # it was removed, and there is another one by that name
            return False
        _put(reopen(path, flags), descriptor, os.lseek(descriptor, 0, os.SEEK_CUR))
    except OSError:
        return False
    return True


def _copy(descriptor: int) -> None:
    """A file that is read and written becomes a copy in memory."""
    if not hasattr(os, "memfd_create"):
        _replace_by_nothing(descriptor)
        return
    copy = os.memfd_create("copy")
    os.write(copy, os.pread(descriptor, _COPIED_AT_MOST, 0))
    _put(copy, descriptor, os.lseek(descriptor, 0, os.SEEK_CUR))


def _replace_by_nothing(descriptor: int) -> None:
    """What is written vanishes, what is read has ended."""
    try:
        os.fstat(descriptor)
    except OSError:
        return
    _put(os.open(os.devnull, os.O_RDWR), descriptor, None)


def _put(new: int, descriptor: int, position: int | None) -> None:
    if position is not None:
        os.lseek(new, position, os.SEEK_SET)
    os.dup2(new, descriptor, inheritable=False)
    os.close(new)
