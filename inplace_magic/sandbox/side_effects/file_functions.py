"""The functions of Python's library that take a path, standing in for the originals above private layers.

Needed only where the kernel does not keep a rerun's files apart. The name in an error is the one that was asked for, not
the private one.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from . import run as runs
from .calls import Calls
from .layers import Layers, real
from .listing import Listing
from .replacements import Function, Replacement, find

__all__ = ["file_replacements"]


def _text(path: Any, dir_fd: int | None, layers: Layers) -> str:
    """A path argument as text; one that is relative to an open folder, by the name that the run knows the folder by."""
    name = os.fsdecode(path)
    if dir_fd is None or dir_fd < 0 or name.startswith("/"):
        return name
    folder = real.readlink(f"/proc/self/fd/{dir_fd}")
    return os.path.join(folder.removeprefix(layers.files) or "/", name)


def _named(wrapper: Function) -> Function:
    """Errors name what was asked for."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return wrapper(*args, **kwargs)
        except OSError as raised:
            paths = [a for a in args[:2] if isinstance(a, str | bytes | os.PathLike)]
            if raised.filename is not None and paths:
                raised.filename = paths[0]
            if raised.filename2 is not None and len(paths) > 1:
                raised.filename2 = paths[1]
            raise

    return call


_Wrap = Callable[[Calls, Function], Function]


def _is_path(path: Any) -> bool:
    return isinstance(path, str | bytes | os.PathLike)


def _at_path(place: Callable[[Calls, str, bool], str]) -> _Wrap:
    """For a call that looks at, or changes, what one path leads to."""

    def wrap(calls: Calls, original: Function) -> Function:
        def call(path: Any, *args: Any, dir_fd: int | None = None, **kwargs: Any) -> Any:
            if not _is_path(path) or runs.mine() is None:
                return original(path, *args, **(kwargs if dir_fd is None else {**kwargs, "dir_fd": dir_fd}))
            follow = kwargs.get("follow_symlinks", True)
            return original(place(calls, _text(path, dir_fd, calls.layers), follow), *args, **kwargs)

        return call

    return wrap


def _access(calls: Calls, original: Function) -> Function:
    looked = _LOOKED(calls, original)

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return looked(*args, **kwargs)
        except OSError:  # it has no errors
            return False

    return call


def _lstat(calls: Calls, original: Function) -> Function:
    def call(path: Any, *, dir_fd: int | None = None) -> Any:
        if runs.mine() is None:
            return original(path, dir_fd=dir_fd)
        return original(calls.looked(_text(path, dir_fd, calls.layers), follow=False))

    return call


def _doing(method: str, paths: int = 1, more: int = 0) -> _Wrap:
    """For a call that is done by a method of `Calls`: so many paths, and so many arguments more."""

    def wrap(calls: Calls, original: Function) -> Function:
        def call(*args: Any, **kwargs: Any) -> Any:
            if runs.mine() is None or not all(_is_path(a) for a in args[:paths]):
                return original(*args, **kwargs)
            names = (["dir_fd"], ["src_dir_fd", "dst_dir_fd"])[paths - 1]
            texts = [_text(a, kwargs.get(n), calls.layers) for a, n in zip(args, names, strict=False)]
            try:
                return getattr(calls, method)(*texts, *args[paths : paths + more])
            except OSError as raised:
                raised.filename, raised.filename2 = args[0], args[1] if paths > 1 else None
                raise

        return call

    return wrap


def _link(calls: Calls, original: Function) -> Function:
    def call(src: Any, dst: Any, **kwargs: Any) -> Any:
        if runs.mine() is None:
            return original(src, dst, **kwargs)
        old, new = (_text(p, kwargs.get(n), calls.layers) for p, n in ((src, "src_dir_fd"), (dst, "dst_dir_fd")))
        calls.link(old, new, kwargs.get("follow_symlinks", True) and sys.platform != "linux")
        return None

    return call


def _symlink(calls: Calls, original: Function) -> Function:
    def call(src: Any, dst: Any, target_is_directory: bool = False, *, dir_fd: int | None = None) -> Any:
        if runs.mine() is None:
            return original(src, dst, target_is_directory, dir_fd=dir_fd)
        calls.symlink(os.fsdecode(src), _text(dst, dir_fd, calls.layers))
        return None

    return call


def _listdir(calls: Calls, original: Function) -> Function:
    def call(path: Any = ".") -> Any:
        name = _folder(path, calls)
        if name is None:
            return original(path)
        names = calls.layers.names(calls.layers.walk(name))
        return [os.fsencode(n) for n in names] if isinstance(path, bytes) else names

    return call


def _scandir(calls: Calls, original: Function) -> Function:
    def call(path: Any = ".") -> Any:
        name = _folder(path, calls)
        return original(path) if name is None else Listing(path, name, calls.layers)

    return call


def _folder(path: Any, calls: Calls) -> str | None:
    """The folder to list, where that cannot be left to the operating system."""
    if runs.mine() is None or not calls.layers.used:
        return None
    if isinstance(path, int):
        return _text(".", path, calls.layers)
    name = "." if path is None else os.fsdecode(path)
    return name if calls.layers.covers(name) else None


def _os_open(calls: Calls, original: Function) -> Function:
    def call(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> Any:
        if runs.mine() is None:
            return original(path, flags, mode, dir_fd=dir_fd)
        return original(calls.opened(_text(path, dir_fd, calls.layers), flags), flags, mode)

    return call


def _open(calls: Calls, original: Function) -> Function:
    def call(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if runs.mine() is None or not _is_path(file):
            return original(file, mode, *args, **kwargs)
        if len(args) > 5 or kwargs.get("opener") is not None:  # which opens it by os.open
            with calls.layers.opening(os.path.abspath(os.fsdecode(file))):
                return original(file, mode, *args, **kwargs)
        placed = calls.opened(os.fsdecode(file), _flags(str(mode)))
        if placed == os.fsdecode(file):
            return original(file, mode, *args, **kwargs)
        with calls.layers.opening(
            os.path.abspath(os.fsdecode(file))
        ):  # Python tells of that name, as if it were opened
            return original(file, mode, *args, **kwargs, opener=lambda name, flags: real.open(placed, flags, 0o666))

    return call


def _flags(mode: str) -> int:
    update = os.O_RDWR if "+" in mode else os.O_WRONLY
    if "x" in mode:
        return update | os.O_CREAT | os.O_EXCL
    if "w" in mode:
        return update | os.O_CREAT | os.O_TRUNC
    if "a" in mode:
        return update | os.O_CREAT | os.O_APPEND
    return os.O_RDWR if "+" in mode else os.O_RDONLY


def _getcwd(calls: Calls, original: Function) -> Function:
    return lambda: calls.layers.cwd() if runs.mine() else original()


def _getcwdb(calls: Calls, original: Function) -> Function:
    return lambda: os.fsencode(calls.layers.cwd()) if runs.mine() else original()


def _socket(calls: Calls, original: Function) -> Function:
    """A socket's file, of a DataLoader's workers. Its name may have about 100 characters only, so it has another place."""

    def call(sock: Any, address: Any) -> Any:
        if runs.mine() and _is_path(address) and os.fsdecode(address)[:1] not in ("", "\0"):
            binds = getattr(original, "__name__", "") == "bind"
            entry = calls._absent(os.fsdecode(address)) if binds else calls._existing(os.fsdecode(address))
            address = calls.layers.physical(entry)
            if entry.above is not None or binds:
                if binds:
                    real.close(real.open(address, os.O_CREAT | os.O_WRONLY, 0o600))
                address = f"{calls.layers.folder}/{zlib.crc32(address.encode()):x}"
        return original(sock, address)

    return call


_LOOKED = _at_path(lambda calls, path, follow: calls.looked(path, follow))
_CHANGED = _at_path(lambda calls, path, follow: calls.changed(path, follow))
_TABLE: dict[str, _Wrap] = {
    **dict.fromkeys(("stat", "statvfs", "pathconf", "listxattr", "getxattr"), _LOOKED),
    **dict.fromkeys(("chmod", "chown", "utime", "truncate", "setxattr", "removexattr", "chflags"), _CHANGED),
    "readlink": _at_path(lambda calls, path, follow: calls.looked(path, follow=False)),
    "lchown": _at_path(lambda calls, path, follow: calls.changed(path, follow=False)),
    "lstat": _lstat,
    "access": _access,
    "mkdir": _doing("mkdir", more=1),
    "rmdir": _doing("rmdir"),
    "remove": _doing("unlink"),
    "unlink": _doing("unlink"),
    "rename": _doing("rename", paths=2),
    "replace": _doing("rename", paths=2),
    "mkfifo": _doing("refuse_special"),
    "mknod": _doing("refuse_special"),
    "chdir": _doing("chdir"),
    "link": _link,
    "symlink": _symlink,
    "listdir": _listdir,
    "scandir": _scandir,
    "open": _os_open,
    "getcwd": _getcwd,
    "getcwdb": _getcwdb,
}

# Modules of the standard library that keep a function by another name.
_OPENERS = (
    ("builtins", "open"),
    ("io", "open"),
    ("_io", "open"),
    ("bz2", "_builtin_open"),
    ("lzma", "_builtin_open"),
    ("tarfile", "bltn_open"),
)


def file_replacements(layers: Layers) -> Iterator[Replacement]:
    """What stands in for the functions that take paths."""
    calls = Calls(layers)
    made: dict[Any, Function] = {}
    for name, wrap in _TABLE.items():
        for module in ("os", "posix", "nt"):
            found = find(module, name)
            if found is not None:
                original = found[2]
                made.setdefault(original, _named(wrap(calls, original)))
                yield sys.modules[module], name, made[original]
    for module, name in _OPENERS:
        found = find(module, name)
        if found is not None:
            yield sys.modules[module], name, _named(_open(calls, found[2]))
    found = find("_io", "open_code")  # by which modules are imported
    if found is not None:
        yield found[0], "open_code", _LOOKED(calls, found[2])
    for name in ("bind", "connect", "connect_ex"):
        found = find("socket", f"socket.{name}")
        if found is not None:
            yield found[0], name, _socket(calls, found[2])
    yield from _captured(layers, made)


def _captured(layers: Layers, made: dict[Any, Function]) -> Iterator[Replacement]:
    """Sets that say what a function can do, and a way by descriptors that the layers do not have."""
    for name in ("supports_dir_fd", "supports_fd", "supports_follow_symlinks", "supports_effective_ids"):
        known: set[Any] = getattr(os, name, set())
        yield os, name, known | {stand_in for original, stand_in in made.items() if original in known}
    if hasattr(shutil, "_use_fd_functions"):
        yield shutil, "_use_fd_functions", False
    for name in ("close", "cleanup"):  # tempfile keeps os.unlink as a default
        found = find("tempfile", f"_TemporaryFileCloser.{name}")
        kept = getattr(found[2], "__defaults__", None) if found is not None else None
        if found is not None and kept is not None:
            yield (
                found[2],
                "__defaults__",
                tuple(made.get(value, value) if callable(value) else value for value in kept),
            )
    found = find("numpy.lib._datasource", "_file_openers._file_openers")
    if found is not None and isinstance(found[2], dict):
        owner, name, openers = found
        yield owner, name, {k: io.open if v is _io_open else v for k, v in openers.items()}


_io_open = io.open
