"""Puts a rerun where its effects stay with it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from . import namespace
from . import run as runs
from .judges import JUDGES, shown
from .native import native_replacements
from .refused import Attempts, RefusedFile
from .replacements import Replacement, replace, replacements
from .run import Files, Run

__all__ = ["contained", "make_private", "replaced"]

MOST_BYTES = 2**30
_hooked = False


@contextmanager
def contained() -> Iterator[Attempts]:
    """While active, an effect outside of the process raises an error of the operating system's, noted in what is given.

    Files are written where `make_private` has said; where it was not called, writing one is such an effect.
    Every thread is concerned but those that were there before.
    """
    _install_hook()
    outer, run = runs.current, Run(_files or _NoFiles(), _children())
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


def replaced() -> Iterator[tuple[Any, str]]:
    """What `contained` replaces, as (owner, name), for whoever puts things back where an interrupt came in between."""
    yield runs, "current"
    for owner, name, _ in _replacements(_NoFiles()):
        yield owner, name


def _replacements(files: Files) -> Iterator[Replacement]:
    yield from replacements()
    if not isinstance(files, _View):
        yield from native_replacements()


def make_private() -> Callable[[str, int], int] | None:
    """Gives this process files of its own, for good. To be called in a process that exists for one rerun only, once, as
    long as it has one thread.

    What is returned opens a file among them; None where there is no means for that.
    """
    global _files
    with suppress(OSError):
        _files = _View(namespace.enter(MOST_BYTES))
        return os.open
    return None


_files: Files | None = None


class _NoFiles:
    """Nothing may be written but what multiprocessing needs to hand a batch to its parent."""

    def is_private(self, path: str) -> bool:
        if path.startswith(("/dev/shm/torch_", "/dev/shm/sem.")):
            return True
        below = os.path.relpath(path, tempfile.gettempdir())
        return below.startswith("pymp-") and ".." not in below

    def place(self, path: str, flags: int) -> str:
        if flags & (os.O_WRONLY | os.O_RDWR) and (run := runs.current) is not None:
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
