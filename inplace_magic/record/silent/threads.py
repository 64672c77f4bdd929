"""Writes that the user's own threads make: function modes are a thread's own, so ours does not see them.

A thread that starts while a run is recorded gets a mode of its own, which logs writes with that thread's line.
(``threading.settrace`` is torch's and Python's only public way into a new thread; it yields to a debugger.) What a
thread saves and where it goes backward is not looked at, and said so.
"""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ...source.location import user_stack
from ...torch_private import push_function_mode
from ..operations import plain_name
from .events import Detector, Run


class Threads(Detector):
    """Logs the writes of threads."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._on = False
        self.lock = threading.Lock()

    def begins(self) -> None:
        if threading.gettrace() is None:
            self._on = True
            threading.settrace(self._starting)
            self.run.at_end(self._stop)

    def _stop(self) -> None:
        self._on = False
        if threading.gettrace() == self._starting:
            threading.settrace(None)

    def _starting(self, frame: types.FrameType, event: str, argument: Any) -> None:
        """Called as the first thing that a new thread does."""
        sys.settrace(None)
        if self._on:
            with self.run.ours:
                push_function_mode(_Writes(self))

    def write(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A call of torch's in such a thread."""
        __tracebackhide__ = True
        if not self._on:
            return func(*args, **kwargs)
        wanted: list[torch.Tensor] = []
        with self.run.ours, self.lock:
            wanted = self.run.about_to_write(func, args, kwargs)
        result = func(*args, **kwargs)
        if wanted:
            with self.run.ours, self.lock:
                self.run.wrote(plain_name(func), user_stack(sys._getframe(1)), wanted)
        return result


class _Writes(TorchFunctionMode):
    """The mode of one thread."""

    def __init__(self, threads: Threads) -> None:
        super().__init__()
        self._threads = threads

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        __tracebackhide__ = True
        return self._threads.write(func, args, kwargs or {})
