"""The recorder for a run that is for real: it notes what it sees and leaves every value and every error as it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..sandbox.undo import private
from ..torch_private import version_of
from . import evidence
from .observed import Saved, Stack
from .retained_graphs import KeptGraphs
from .silent.hidden import HiddenRecorder

_SHARE = 0.25  # of the time that may go into comparing foreign memory after each line
_ALWAYS = 0.05  # seconds that may go into it in any case


class Watcher(HiddenRecorder):
    """Watches a block while it runs. Where comparing after each line would cost too much, the writing line of foreign
    memory stays unknown; that a value has changed is found all the same."""

    goes_on = False

    def __init__(self, sources: Any, memory: int | None = None) -> None:
        super().__init__(sources, track=False, memory=memory)
        self.kept_graphs = KeptGraphs()
        self._watching = False
        self._leaving = False
        self._plain_backward = torch.Tensor.backward
        self.on_leave: Callable[[], None] = lambda: None
        self._started = time.perf_counter()
        self._comparing = 0.0
        self._skipped = False  # a line has run since memory was last compared

    def __enter__(self) -> Watcher:
        plain = self._plain_backward

        def backward(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            result = plain(tensor, *args, **kwargs)
            if self._leaving:
                self.leave()
            return result

        torch.Tensor.backward = backward  # type: ignore[assignment,method-assign]
        super().__enter__()
        self._watching = True
        return self

    def leave(self) -> None:
        """Ends the watch in the middle of a run; what is yet to come runs at full speed.

        Within a call that our own mode handles the mode cannot be taken off; then it is when that call returns.
        """
        self._leaving = True
        if self._watching and private.on_top(self):
            self._end(None, None, None)
            self.on_leave()

    def __exit__(self, *exc: Any) -> None:
        if self._watching:
            self._end(*exc)

    def _end(self, *exc: Any) -> None:
        self._watching = False
        self._end_step()
        torch.Tensor.backward = self._plain_backward  # type: ignore[method-assign]
        super().__exit__(*exc)

    def _answer(self, saved: Saved) -> torch.Tensor:
        return self._now(saved, self._writes_since(saved))

    def _other_answer(self, saved: Saved) -> torch.Tensor:
        return saved.alias if saved.value is None else saved.value

    def ask(self, saved: Saved, need: evidence.Backward) -> None:
        super().ask(saved, need)
        now = version_of(saved.alias)
        if now != saved.version:
            kind = saved.alias.type()
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: "
                f"[{kind} {list(saved.alias.shape)}], is at version {now}; expected version {saved.version} instead. "
                "Hint: the report below names the line that changed it."
            )

    def _note_at(self, name: str, look: tuple[Stack, str, Any], written: list[Any]) -> None:
        super()._note_at(name, look, written)
        for tensor in written:  # torch itself will refuse these, so nobody will ask for the value
            for saved in self._waiting(tensor):
                if saved.value is not None and not saved.foreign and version_of(saved.alias) != saved.version:
                    saved.value = None

    def _go_on(self, error: RuntimeError, *rest: Any) -> Any:
        raise error

    def _after_line(self) -> None:
        start = time.perf_counter()
        if self._comparing > _ALWAYS + _SHARE * (start - self._started):
            self._skipped = True
            return
        super()._after_line()
        self._skipped = False
        self._comparing += time.perf_counter() - start

    def _line(self) -> Stack:
        return () if self._skipped else super()._line()

    def around_backward(
        self, event: evidence.Backward, roots: Sequence[torch.Tensor], call: Callable[[bool], Any]
    ) -> tuple[Any, bool]:
        watched = self._watch_nodes(event, roots)
        outer, self._current = self._current, event
        self._notes_use = event.retained or self.kept_graphs.following
        try:
            return call(False), False
        finally:
            used, self._used = self._used, []  # what was used would be held until the next backward
            self._current = outer
            self._unwatch(watched)
            self.kept_graphs.passed(event, used)
