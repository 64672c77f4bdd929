"""Two layers of files: what is really there, read only; above it a private folder with what a run has written.

NOTE [Layers]
``<folder>/f`` mirrors the absolute paths of what was written or changed; a file is copied there before it is changed
("copied up"). ``<folder>/g`` mirrors the paths of what was removed: a file ``g/<path>/<mark>`` says that nothing real is
seen at <path> or below it any more, whatever is written there afterwards. All of it lies on the disk, so that processes
that the run forks see the same. As long as nothing was written every path is its own, at the price of one lstat.

pyfakefs 6.3 does much of this in memory and was measured first: 50 ms to begin with torch loaded; its files have no
descriptors, so that ndarray.tofile, memmap and mmap fail; torch.save and sqlite write past it to the disk; a file is read
whole (12 s to append a line to one of 2 GB), and one that is not closed is not written.

A path is walked name by name, as the kernel does it, since a link that was written may point to a file that was not, and
the other way round.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Entry", "Layers", "error", "real"]

_MARK = "\n"
_LINKS_AT_MOST = 40
_NOT_FILES = ("/proc", "/sys", "/dev")
_SHARED = "/dev/shm"


class _Real:
    """The functions of ``os`` as they are while others stand in for them."""

    access = staticmethod(os.access)
    chdir = staticmethod(os.chdir)
    chmod = staticmethod(os.chmod)
    close = staticmethod(os.close)
    getcwd = staticmethod(os.getcwd)
    listdir = staticmethod(os.listdir)
    lstat = staticmethod(os.lstat)
    mkdir = staticmethod(os.mkdir)
    open = staticmethod(os.open)
    read = staticmethod(os.read)
    readlink = staticmethod(os.readlink)
    rename = staticmethod(os.rename)
    rmdir = staticmethod(os.rmdir)
    stat = staticmethod(os.stat)
    symlink = staticmethod(os.symlink)
    unlink = staticmethod(os.unlink)
    utime = staticmethod(os.utime)
    write = staticmethod(os.write)


real = _Real


def error(number: int, *names: str) -> OSError:
    """The error of the operating system with this number."""
    if len(names) == 2:
        return OSError(number, os.strerror(number), names[0], None, names[1])
    return OSError(number, os.strerror(number), *names)


@dataclass(frozen=True)
class Entry:
    """What a path leads to. ``above`` and ``below`` are what lies there in the two layers, None where nothing is seen."""

    path: str
    above: os.stat_result | None
    below: os.stat_result | None

    @property
    def seen(self) -> os.stat_result | None:
        return self.above or self.below

    @property
    def is_folder(self) -> bool:
        return self.seen is not None and stat.S_ISDIR(self.seen.st_mode)

    @property
    def is_link(self) -> bool:
        return self.seen is not None and stat.S_ISLNK(self.seen.st_mode)


def _asks_for_folder(path: str) -> bool:
    return path.endswith(("/", "/."))


class Layers:
    """``folder``: the private one, which need not exist yet. ``most_bytes``: what may be written at most."""

    def __init__(self, folder: str, most_bytes: int) -> None:
        self.folder, self.most_bytes = folder, most_bytes
        self.files, self._gone = folder + "/f", folder + "/g"
        self._used = False
        self._now = threading.local()
        self._until_measured = 0
        self.exceeded = False

    @property
    def used(self) -> bool:
        """Whether anything was written, by this process or another of the run."""
        if not self._used:
            self._used = _lstat(self.files) is not None
        return self._used

    def covers(self, path: str) -> bool:
        """Whether a path is one of the files that are layered: not the system's, nor in the private folder."""
        if path.startswith("/"):
            if _is_below(path, self.folder):
                return False
            return not _is_below(path, *_NOT_FILES) or _is_below(path, _SHARED)
        return True

    def cwd(self) -> str:
        place = real.getcwd()
        return place[len(self.files) :] or "/" if _is_below(place, self.files) else place

    @contextlib.contextmanager
    def opening(self, path: str) -> Iterator[None]:
        """While this thread opens a file by the name that the run knows it by."""
        self._now.path = path
        try:
            yield
        finally:
            self._now.path = None

    def is_private(self, path: str) -> bool:
        return _is_below(path, self.folder) or path == getattr(self._now, "path", None)

    # Looking.

    def walk(self, path: str, follow: bool = True, creates: bool = False) -> Entry:
        """Raises OSError as the operating system does where the path leads through what is no folder, or in a circle.

        A slash at the end asks for a folder, that of a link's target as well; where a file is to be made, by EISDIR.
        """
        if not path:
            raise error(errno.ENOENT, path)
        place, below_seen = "/", True
        above, below = _lstat(self.files), _lstat("/")
        names = [n for n in os.path.join(self.cwd(), path).split("/") if n not in ("", ".")][::-1]
        ending, links = path, 0  # the text by which the last name is reached
        while names:
            name = names.pop()
            current = above or below
            if current is None:
                raise error(errno.ENOENT, path)
            if not stat.S_ISDIR(current.st_mode):
                raise error(errno.ENOTDIR, path)
            if creates and not names and ending.endswith("/"):
                raise error(errno.EISDIR, path)
            if name == "..":
                place = os.path.dirname(place)
                above, below, below_seen = self._at(place)
                continue
            last_place, last = place, (above, below, below_seen)
            place = _join(place, name)
            above = _lstat(self.files + place) if above is not None else None
            below_seen = below_seen and below is not None and not self._is_gone(place)
            below = _lstat(place) if below_seen else None
            current = above or below
            if current is None or not stat.S_ISLNK(current.st_mode):
                continue
            if names or follow or _asks_for_folder(ending):
                links += 1
                if links > _LINKS_AT_MOST:
                    raise error(errno.ELOOP, path)
                target = real.readlink(self.files + place if above is not None else place)
                ending = target if not names and _asks_for_folder(target) else ending
                names += [n for n in target.split("/") if n not in ("", ".")][::-1]
                place, (above, below, below_seen) = last_place, last
                if target.startswith("/"):
                    place, (above, below, below_seen) = "/", self._at("/")
        current = above or below
        if current is None and ending.endswith("/."):
            raise error(errno.ENOENT, path)
        if _asks_for_folder(ending) and current is not None and not stat.S_ISDIR(current.st_mode):
            raise error(errno.ENOTDIR, path)
        return Entry(place, above, below)

    def _at(self, place: str) -> tuple[os.stat_result | None, os.stat_result | None, bool]:
        """The two layers at a place that was reached already, so that no link is on the way."""
        seen, at = True, ""
        for name in place.split("/")[1:] if place != "/" else ():
            at += "/" + name
            seen = seen and not self._is_gone(at)
        return _lstat(self.files + (place if place != "/" else "")), _lstat(place) if seen else None, seen

    def physical(self, entry: Entry) -> str:
        """Where the operating system finds it; where it finds nothing, if there is nothing."""
        return entry.path if entry.above is None and entry.below is not None else self.files + entry.path

    def names(self, entry: Entry) -> list[str]:
        """What is seen in a folder. Raises OSError where it is none."""
        if entry.seen is None:
            raise error(errno.ENOENT, entry.path)
        if not entry.is_folder:
            raise error(errno.ENOTDIR, entry.path)
        found = dict.fromkeys(real.listdir(self.files + entry.path)) if entry.above is not None else {}
        if entry.below is not None:
            for name in real.listdir(entry.path):
                if not self._is_gone(_join(entry.path, name)):
                    found[name] = None
        return list(found)

    def _is_gone(self, path: str) -> bool:
        return _lstat(f"{self._gone}{path}/{_MARK}") is not None

    # Changing.

    def hide(self, path: str) -> None:
        """Nothing real is seen at this path any more."""
        self.copy_up_folder("/")
        _make_folders(self._gone + path)
        real.close(real.open(f"{self._gone}{path}/{_MARK}", os.O_CREAT | os.O_WRONLY, 0o600))

    def prepare_parent(self, path: str) -> None:
        """Make ready for an entry to come, to go or to change at this path. Raises OSError where that is not allowed."""
        parent = os.path.dirname(path)
        above, below, _ = self._at(parent)
        if above is None:
            if below is None:
                raise error(errno.ENOENT, path)
            if not real.access(parent, os.W_OK | os.X_OK):
                raise error(errno.EACCES, path)
            self.copy_up_folder(parent)

    def copy_up_folder(self, path: str) -> None:
        """The folder itself and those above it, without what is in them."""
        if _lstat(self.files + path) is not None:
            return
        if path == "/":
            _make_folders(self.files)
            return
        self.copy_up_folder(os.path.dirname(path))
        seen = real.stat(path)
        try:
            real.mkdir(self.files + path, 0o700)
        except FileExistsError:  # a worker process of the same rerun was quicker
            return
        real.chmod(self.files + path, stat.S_IMODE(seen.st_mode))

    def copy_up(self, entry: Entry, contents: bool = True) -> str:
        """Make what a path leads to one's own; the physical path is returned. Raises OSError."""
        physical = self.files + entry.path
        if entry.above is not None:
            return physical
        assert entry.below is not None
        if entry.is_folder:
            self.copy_up_folder(entry.path)
            return physical
        self.copy_up_folder(os.path.dirname(entry.path))
        if entry.is_link:
            real.symlink(real.readlink(entry.path), physical)
        elif not stat.S_ISREG(entry.below.st_mode):
            raise error(errno.EACCES, entry.path)
        else:
            self._copy(entry.path, physical, entry.below, contents)
        return physical

    def remove(self, entry: Entry) -> None:
        """A file, or a folder in which nothing is seen any more, is gone. Raises OSError where that is not allowed."""
        self.prepare_parent(entry.path)
        self.reserve()
        if entry.above is not None:
            (real.rmdir if stat.S_ISDIR(entry.above.st_mode) else real.unlink)(self.files + entry.path)
        if entry.below is not None:
            self.hide(entry.path)

    def copy_up_all(self, entry: Entry) -> str:
        """The same for a folder with everything in it."""
        physical = self.copy_up(entry)
        if entry.is_folder and entry.below is not None:
            for name in self.names(entry):
                self.copy_up_all(self.walk(_join(entry.path, name), follow=False))
        return physical

    def _copy(self, source: str, target: str, seen: os.stat_result, contents: bool) -> None:
        if contents:
            self.reserve(seen.st_size)
        given = real.open(source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            taken = real.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                while contents and (data := real.read(given, 2**20)):
                    real.write(taken, data)
            finally:
                real.close(taken)
        finally:
            real.close(given)
        real.chmod(target, stat.S_IMODE(seen.st_mode))
        real.utime(target, ns=(seen.st_atime_ns, seen.st_mtime_ns))

    # The bound.

    def reserve(self, more: int = 0) -> None:
        """To be called before something is written. Raises OSError (no space) once too much was.

        Everything is measured now and then, the more rarely the more files there are.
        """
        self._until_measured -= 1
        if self._until_measured > 0 and more < 2**20:
            return
        sizes = list(self._sizes(self.files))
        self._until_measured = len(sizes) // 4
        if sum(sizes) + more > self.most_bytes:
            self.exceeded = True
            raise error(errno.ENOSPC)

    def _sizes(self, folder: str) -> Iterator[int]:
        seen = _lstat(folder)
        if seen is not None and stat.S_ISDIR(seen.st_mode):
            for name in real.listdir(folder):
                yield from self._sizes(f"{folder}/{name}")
        elif seen is not None:
            yield seen.st_blocks * 512


def _lstat(path: str) -> os.stat_result | None:
    try:
        return real.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_below(path: str, *folders: str) -> bool:
    return any(path == folder or path.startswith(folder + "/") for folder in folders)


def _join(folder: str, name: str) -> str:
    return f"/{name}" if folder == "/" else f"{folder}/{name}"


def _make_folders(path: str) -> None:
    if _lstat(path) is None:
        _make_folders(os.path.dirname(path))
        try:
            real.mkdir(path, 0o700)
        except FileExistsError:  # another process of the run was quicker
            return
