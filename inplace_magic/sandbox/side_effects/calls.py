"""What each kind of call on files does above private layers.

What the operating system would refuse is refused with its error.
"""

from __future__ import annotations

import errno
import os
import stat

from .layers import Entry, Layers, error, real

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_TMPFILE = getattr(os, "O_TMPFILE", 0)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_link = os.link


class Calls:
    """One method for each kind of call, named after that of ``os``; paths are text."""

    def __init__(self, layers: Layers) -> None:
        self.layers = layers

    def looked(self, path: str, follow: bool = True) -> str:
        """Where to look at a path without changing it."""
        if not self.layers.used or not self.layers.covers(path):
            return path
        return self.layers.physical(self.layers.walk(path, follow))

    def changed(self, path: str, follow: bool = True) -> str:
        """Where to change what a path leads to, having copied it up."""
        if not self.layers.covers(path):
            return path
        entry = self._existing(path, follow)
        if entry.above is None:
            self.layers.reserve()
        return self.layers.copy_up(entry)

    def opened(self, path: str, flags: int) -> str:
        """The path to open with ``flags``. Raises OSError as opening would, where that can be told only here."""
        if not self.layers.covers(path):
            return path
        if _TMPFILE and flags & _TMPFILE == _TMPFILE:
            return self.layers.copy_up(self._existing(path))
        if not flags & _WRITING:
            return self.looked(path, not flags & _NOFOLLOW)
        if flags & os.O_CREAT and path.endswith("/") and _last(path) not in (".", ".."):
            self._parent(path)
            raise error(errno.EISDIR, path)
        exclusive = flags & os.O_CREAT and flags & os.O_EXCL
        follow = not (exclusive or flags & _NOFOLLOW)
        entry = self.layers.walk(path.rstrip("/") or "/", follow, creates=bool(flags & os.O_CREAT))
        if entry.seen is None:
            return self._created(path, entry, flags)
        if exclusive:
            raise error(errno.EEXIST, path)
        if entry.is_folder:
            raise error(errno.EISDIR, path)
        if path.endswith("/"):
            raise error(errno.ENOTDIR, path)
        if entry.above is not None or not flags & (os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_APPEND):
            return self.layers.physical(entry)
        if not stat.S_ISREG(entry.seen.st_mode):
            return entry.path  # a device, or a pipe
        if not real.access(entry.path, os.W_OK):
            raise error(errno.EACCES, path)
        self.layers.reserve()
        return self.layers.copy_up(entry, contents=not flags & os.O_TRUNC)

    def _created(self, path: str, entry: Entry, flags: int) -> str:
        if not flags & os.O_CREAT:
            raise error(errno.ENOENT, path)
        self.layers.prepare_parent(entry.path)
        self.layers.reserve()
        return self.layers.files + entry.path

    def _existing(self, path: str, follow: bool = True) -> Entry:
        entry = self.layers.walk(path, follow)
        if entry.seen is None:
            raise error(errno.ENOENT, path)
        return entry

    def _parent(self, path: str) -> Entry:
        """The folder in which the last name of a path stands."""
        return self._existing(path.rstrip("/").rpartition("/")[0] + "/" if "/" in path.rstrip("/") else ".")

    def _absent(self, path: str) -> Entry:
        """An entry to be made. Raises OSError where something is there, or where nothing can be made."""
        entry = self.layers.walk(path.rstrip("/") or "/", follow=False)  # what is there is in the way, folder or not
        if entry.seen is not None:
            raise error(errno.EEXIST, path)
        if path.endswith("/"):
            raise error(errno.ENOENT, path)
        self.layers.prepare_parent(entry.path)
        self.layers.reserve()
        return entry

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        entry = self._absent(path.rstrip("/") or "/")
        real.mkdir(self.layers.files + entry.path, mode)

    def rmdir(self, path: str) -> None:
        if _last(path) in (".", ".."):
            self._parent(path)
            raise error(errno.EINVAL if _last(path) == "." else errno.ENOTEMPTY, path)
        entry = self._existing(path.rstrip("/") or "/", follow=False)
        if not entry.is_folder:
            raise error(errno.ENOTDIR, path)
        if self.layers.names(entry):
            raise error(errno.ENOTEMPTY, path)
        self.layers.remove(entry)

    def unlink(self, path: str) -> None:
        entry = self._existing(path.rstrip("/") or "/", follow=False)
        if entry.is_folder:
            raise error(errno.EISDIR, path)
        if path.endswith("/"):
            raise error(errno.ENOTDIR, path)
        self.layers.remove(entry)

    def rename(self, source: str, target: str) -> None:
        for path in (source, target):
            self._parent(path)
        if {_last(source), _last(target)} & {".", ".."}:
            raise error(errno.EBUSY, source, target)
        old = self._existing(source.rstrip("/") or "/", follow=False)
        new = self.layers.walk(target.rstrip("/") or "/", follow=False)
        if not old.is_folder and (source.endswith("/") or target.endswith("/")):
            raise error(errno.ENOTDIR, source, target)
        if old.path == new.path:
            return
        if new.path.startswith(old.path + "/"):
            raise error(errno.EINVAL, source, target)
        self._may_replace(old, new, source, target)
        self.layers.prepare_parent(old.path)
        self.layers.prepare_parent(new.path)
        self.layers.reserve()
        moved = self.layers.copy_up_all(old)
        if new.seen is not None:
            self.layers.remove(new)
        real.rename(moved, self.layers.files + new.path)
        if old.below is not None:
            self.layers.hide(old.path)

    def _may_replace(self, old: Entry, new: Entry, source: str, target: str) -> None:
        if old.path.startswith(new.path + "/"):
            raise error(errno.ENOTEMPTY, source, target)
        if new.seen is None:
            return
        if old.is_folder and not new.is_folder:
            raise error(errno.ENOTDIR, source, target)
        if new.is_folder and not old.is_folder:
            raise error(errno.EISDIR, source, target)
        if new.is_folder and self.layers.names(new):
            raise error(errno.ENOTEMPTY, source, target)

    def link(self, source: str, target: str, follow: bool) -> None:
        entry = self._existing(source, follow)
        new = self._absent(target)
        if entry.is_folder:
            raise error(errno.EPERM, source, target)
        _link(self.layers.copy_up(entry), self.layers.files + new.path, follow_symlinks=False)

    def symlink(self, target: str, path: str) -> None:
        real.symlink(target, self.layers.files + self._absent(path).path)

    def refuse_special(self, path: str) -> None:
        """A pipe or a device is not made."""
        raise error(errno.EPERM, path)

    def chdir(self, path: str) -> None:
        if not self.layers.used or not self.layers.covers(path):
            real.chdir(path)
            return
        entry = self._existing(path)
        if not entry.is_folder:
            raise error(errno.ENOTDIR, path)
        real.chdir(entry.path if entry.below is not None else self.layers.files + entry.path)


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
