"""A rerun ends with the process it was started for, however that ends; and its own children end with it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from .side_effects import kernel

__all__ = ["die_with"]

_PR_SET_PDEATHSIG = 1


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
