"""A rerun ends with the process it was started for, however that ends; its own children end with it."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import sys
import tempfile
import threading
import time

from .side_effects import kernel

__all__ = ["die_with", "scratch_folder"]

_PR_SET_PDEATHSIG = 1
_PREFIX = "inplace_magic-"
_numbers = itertools.count()


def die_with(parent: int) -> None:
    """To be called in a new process: it is killed when the process ``parent`` is gone, and so are its children with it."""
    if sys.platform == "linux":
        _killed_by_kernel(parent)
        os.register_at_fork(after_in_child=_follow)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _follow() -> None:
    _killed_by_kernel(os.getppid())


def _killed_by_kernel(parent: int) -> None:
    kernel.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was gone before we asked
        os._exit(1)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def scratch_folder() -> str:
    """The path of a folder for a rerun to make. What reruns of processes that were killed have left is removed."""
    place, number = tempfile.gettempdir(), next(_numbers)
    if number == 0:
        with contextlib.suppress(OSError):
            for entry in list(os.scandir(place)):
                if entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False) and not _lives(entry.name):
                    shutil.rmtree(entry.path, ignore_errors=True)
    # One that was left may belong to a process that had this one's number before it.
    return os.path.join(place, f"{_PREFIX}{os.getpid()}-{number}-{os.urandom(4).hex()}")


def _lives(name: str) -> bool:
    pid = name.removeprefix(_PREFIX).partition("-")[0]
    if not pid.isdecimal():
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
