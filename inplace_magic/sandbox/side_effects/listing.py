"""What ``os.scandir`` gives, for a folder that lies in two layers."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Any

from .layers import Entry, Layers, error, real

__all__ = ["Listing"]


class Listing:
    """An iterator and context manager of entries. Raises OSError where the folder cannot be listed.

    ``given`` is the folder as it was asked for, ``name`` the same as text.
    """

    def __init__(self, given: Any, name: str, layers: Layers) -> None:
        self._entries = self._listed(given, layers.walk(name), layers)

    def _listed(self, given: Any, folder: Entry, layers: Layers) -> Iterator[ListedEntry]:
        names = layers.names(folder)

        def listed() -> Iterator[ListedEntry]:
            for name in names:
                yield ListedEntry(given, name, layers.walk(os.path.join(folder.path, name), follow=False), layers)

        return listed()

    def __iter__(self) -> Listing:
        return self

    def __next__(self) -> ListedEntry:
        return next(self._entries)

    def __enter__(self) -> Listing:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter(())


class ListedEntry(os.PathLike[Any]):
    """Like ``os.DirEntry``."""

    def __init__(self, given: Any, name: str, entry: Entry, layers: Layers) -> None:
        as_bytes = isinstance(given, bytes)
        self.name: Any = os.fsencode(name) if as_bytes else name
        if given is None or isinstance(given, int):
            self.path: Any = self.name
        else:
            self.path = os.path.join(os.fspath(given), self.name)
        self._entry, self._layers = entry, layers

    def __fspath__(self) -> Any:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"

    def inode(self) -> int:
        return self._entry.seen.st_ino if self._entry.seen is not None else 0

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        entry = self._followed(follow_symlinks)
        if entry is None or entry.seen is None:
            raise error(2, self.path)
        return real.lstat(self._layers.physical(entry))

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._is(stat.S_ISDIR, follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return self._is(stat.S_ISREG, follow_symlinks)

    def is_symlink(self) -> bool:
        return self._entry.is_link

    def is_junction(self) -> bool:
        return False

    def _is(self, kind: Any, follow: bool) -> bool:
        entry = self._followed(follow)
        return entry is not None and entry.seen is not None and bool(kind(entry.seen.st_mode))

    def _followed(self, follow: bool) -> Entry | None:
        if not follow or not self._entry.is_link:
            return self._entry
        try:
            return self._layers.walk(self._entry.path)
        except FileNotFoundError:
            return None
