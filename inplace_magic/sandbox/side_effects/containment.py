"""Puts a rerun where its effects stay with it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Literal

from . import landlock, namespace
from . import run as runs
from .calls import Calls
from .file_functions import file_replacements
from .judges import JUDGES, shown
from .layers import Layers
from .moved import moving_replacements
from .native import native_replacements
from .refused import Attempts, RefusedFile
from .replacements import Replacement, replace, replacements
from .run import Files, Run

__all__ = ["contained", "make_private"]

MOST_BYTES = 2**30
_hooked = False


@contextmanager
def contained(folder: str | None = None) -> Iterator[Attempts]:
    """While active, an effect outside of the process raises an error of the operating system's, noted in what is given.

    Files are written where `make_private` has said; where it was not called, writing one is such an effect, but in
    ``folder``.
    Every thread is concerned but those that were there before.
    """
    _install_hook()
    outer, run = runs.current, Run(_files or _NoFiles(folder), _children())
    with ExitStack() as undo:
        undo.callback(run.attempts.close)
        for owner, name, replacement in _replacements(run.files):
            replace(undo, owner, name, replacement)
        runs.current = run
        try:
            yield run.attempts
        finally:
            runs.current = outer
            if run.files.full():
                run.attempts.note(f"writes more than {MOST_BYTES // 2**20} MB to files")
            if outer is not None and run.attempts.first is not None:
                outer.attempts.note(run.attempts.first)


def _replacements(files: Files) -> Iterator[Replacement]:
    yield from replacements()
    if isinstance(files, _View):
        yield from moving_replacements()
    else:
        yield from native_replacements()
    if isinstance(files, _Layered):
        yield from file_replacements(files.layers)


def make_private(
    scratch: str, means: Collection[Means] = ("namespace", "landlock")
) -> Callable[[str, int], int] | None:
    """Gives this process files of its own, for good. To be called in a process that exists for one rerun only, once, as
    long as it has one thread.

    ``scratch``: a folder that does not exist yet and that whoever started this process removes at its end; it is needed
    only where the kernel has no better place. ``means``: what of the kernel's may be used.
    What is returned opens a file among the private ones; None where there is no place for them.
    """
    global _files
    if "namespace" in means:
        with suppress(OSError):
            _files = _View(namespace.enter(MOST_BYTES))
            with suppress(OSError):
                landlock.restrict(None)
            return os.open
    try:
        os.mkdir(scratch, 0o700)
    except OSError:
        return None
    _files = files = _Layered(Layers(scratch, MOST_BYTES))
    if "landlock" in means:
        with suppress(OSError):
            landlock.restrict([scratch, "/dev/shm"])
    return lambda path, flags: os.open(files.place(path, flags), flags)


Means = Literal["namespace", "landlock"]
_files: Files | None = None


class _NoFiles:
    """Nothing may be written but in one folder, and what multiprocessing needs to hand a batch to its parent."""

    def __init__(self, folder: str | None) -> None:
        self._folder = None if folder is None else os.path.join(folder, "")

    def is_private(self, path: str) -> bool:
        if path.startswith(("/dev/shm/torch_", "/dev/shm/sem.", *([self._folder] if self._folder else []))):
            return ".." not in path.split(os.sep)
        below = os.path.relpath(path, tempfile.gettempdir())
        return below.startswith("pymp-") and ".." not in below

    def place(self, path: str, flags: int) -> str:
        writes = flags & (os.O_WRONLY | os.O_RDWR) and not self.is_private(path)
        if writes and (run := runs.current) is not None:
            run.refuse(RefusedFile, f"writes the file {shown(path)!r}", path)
        return path

    def exists(self, path: str) -> bool:
        return False

    def full(self) -> bool:
        return False


class _View:
    """Everything may be written, since the kernel shows this process files of its own."""

    def __init__(self, view: namespace.View) -> None:
        self._view = view

    def is_private(self, path: str) -> bool:
        return True

    def place(self, path: str, flags: int) -> str:
        return path

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def full(self) -> bool:
        return self._view.full()


class _Layered:
    """What is written goes to a private folder, by functions of Python's that stand in for others."""

    def __init__(self, layers: Layers) -> None:
        self.layers, self._calls = layers, Calls(layers)

    def is_private(self, path: str) -> bool:
        return self.layers.is_private(path) or path.startswith(("/dev/shm/torch_", "/dev/shm/sem."))

    def place(self, path: str, flags: int) -> str:
        return self._calls.opened(path, flags)

    def exists(self, path: str) -> bool:
        return self.layers.walk(path, follow=False).seen is not None

    def full(self) -> bool:
        return self.layers.exceeded


def _children() -> frozenset[int]:
    """Children of the session, which multiprocessing and subprocess took along into a copy of it."""
    found: set[int] = set()
    processes: Any = sys.modules.get("multiprocessing.process")
    if processes is not None:
        found |= {child.pid for child in list(processes._children) if child.pid is not None}
    return frozenset(found)


def _install_hook() -> None:
    global _hooked
    tempfile.gettempdir()  # finds a place by writing a file, once; better now than inside
    if not _hooked:
        sys.addaudithook(_hook)  # can never be removed: hence one for the life of the process
        _hooked = True


def _hook(event: str, args: tuple[Any, ...]) -> None:
    run = runs.current
    if run is None:
        return
    judge = JUDGES.get(event)
    if judge is not None and run.concerns_me():
        judge(run, args)
