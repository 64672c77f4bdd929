"""The watch over a run that is for real: it notes what it sees and leaves every value and every error as it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import torch_private
from ..torch_private import version_of
from . import evidence
from .observed import Saved, Stack
from .retained_graphs import KeptGraphs
from .silent.events import WATCHED
from .silent.stream import EventStream


class Watcher(EventStream):
    """Watches a block while it runs."""

    traces = False

    def __init__(self, sources: Any, memory: int | None = None) -> None:
        super().__init__(sources, WATCHED, memory=memory)
        self.kept_graphs = KeptGraphs()
        self._watching = False
        self._leaving = False
        self._plain_backward = torch.Tensor.backward
        self.on_leave: Callable[[], None] = lambda: None

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
        if self._watching and torch_private.on_top(self):
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

    def _run_backward(
        self, event: evidence.Backward, roots: Sequence[torch.Tensor], call: Callable[[bool], Any]
    ) -> tuple[Any, bool]:
        outer, self._current = self._current, event
        self._notes_use = event.retained or self.kept_graphs.following
        try:
            return call(False), False
        finally:
            used, self._used = self._used, []  # what was used would be held until the next backward
            self._current = outer
            self.kept_graphs.passed(event, used)
