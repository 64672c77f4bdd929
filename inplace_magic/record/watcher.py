"""The watch over a run that is for real: what is seen is noted; every value, every error stays as it was."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import torch_private
from ..source.location import caller
from ..torch_private import unobserved, version_of
from . import evidence
from .author import Author
from .caught import refusal
from .observed import Saved
from .retained_graphs import KeptGraphs
from .shield import Once, Shield
from .silent.aliases import GRAD_GET, GRAD_SET
from .silent.events import WATCHED
from .silent.lost_leaves import reads_gradient_of_result
from .silent.stream import EventStream
from .stand_in import StandIn
from .wrapped import replace

_inference_mode = torch.is_inference_mode_enabled


def _traced() -> bool:
    """Whether operations become part of a graph that the person keeps (torch.jit, torch.export): ours have to stay out."""
    return bool(torch.jit.is_tracing() or torch.compiler.is_compiling())  # type: ignore[attr-defined]


class Watcher(EventStream):
    """Watches a block while it runs.

    Whatever leads from torch, or from the person's code, to ours leads past ``shield``: hooks, the mode, what is wrapped.
    """

    traces = False

    def __init__(self, sources: Any, memory: int | None = None) -> None:
        super().__init__(sources, WATCHED, memory=memory)
        self.shield = Shield()
        self.ours = self.shield
        self._once = Once(lambda: None)  # the person's call that our mode is about to carry out
        self._refused = False
        self.kept_graphs = KeptGraphs()
        self._watching = False
        self._leaving = False
        self.on_leave: Callable[[], None] = lambda: None

    def _put_on(self, on: contextlib.ExitStack) -> None:
        plain = torch.Tensor.backward

        def backward(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            result = plain(tensor, *args, **kwargs)
            if self._leaving or self.shield.failure is not None:
                with self.shield:
                    self.leave()
            return result

        replace(on, torch.Tensor, "backward", StandIn(backward, plain))
        super()._put_on(on)
        self._watching = True

    def leave(self) -> None:
        """Ends the watch in the middle of a run; what is yet to come runs at full speed.

        Within a call that our own mode handles the mode cannot be taken off; then it is when that call returns.
        """
        self._leaving = True
        if self._watching and torch_private.on_top(self):
            self._end()
            self.on_leave()

    def __exit__(self, *exc: Any) -> None:
        if self._watching:
            self._end()

    def _end(self) -> None:
        self._watching = False
        super().__exit__()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        __tracebackhide__ = True
        if self.shield.failure is not None:
            return func(*args, **(kwargs or {}))
        if self._is_of_no_concern(func, args, kwargs):
            self._call += 1
            result = func(*args, **(kwargs or {}))
            if self._due:
                self.operation_over()
            return result
        if _traced():
            return func(*args, **(kwargs or {}))
        outer, self._once = self._once, Once(func)
        try:
            return super().__torch_function__(func, types, args, kwargs)
        except Exception as error:
            if error is self._once.error:
                raise
            self.shield.down(error)
            return self._once.outcome(*args, **(kwargs or {}))
        finally:
            self._once = outer

    def _is_of_no_concern(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any] | None) -> bool:
        """Whether a call is carried out as it is: it writes nothing, and no detector is curious. Most calls are so."""
        if self._current is not None or self.curious or (kwargs and "out" in kwargs) or _inference_mode():
            return False
        try:
            plain = func in self.writers.plain
        except TypeError:  # an unhashable callable
            return False
        if plain or (len(args) == 2 and args[1] is None and func == GRAD_SET):
            return True
        return bool(func == GRAD_GET) and not reads_gradient_of_result(func, args)

    def _carry_out(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        once = self._once
        try:
            once.result = func(*args, **kwargs)
        except BaseException as error:
            once.error = error
            raise
        once.done = True
        return once.result

    def hook(self, ours: Callable[..., Any]) -> Callable[..., Any]:
        return self.shield.hook(ours)

    def _apply(self, plain: Callable[..., Any], cls: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        ours = super()._apply
        return self.shield.around(plain, lambda once: ours(once, cls, args, kwargs), *args, **kwargs)

    def _pack(self, tensor: torch.Tensor) -> Saved:
        if self.shield.failure is None and not _traced():
            try:
                return self._packed(tensor, caller())
            except Exception as error:
                self.shield.down(error)
        return Saved.bare(tensor)

    def _unpack(self, saved: Saved) -> torch.Tensor:
        if self.shield.failure is None:
            self._refused = False
            try:
                if not self._notes_use and not self.turned and saved.freed is None and self._unchanged(saved):
                    return saved.alias
                answer = super()._unpack(saved)
                if not self._refused:
                    return answer
            except Exception as error:
                self.shield.down(error)
        return _as_torch(saved)

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        with self.shield:
            super()._before_step(optimizer, args, kwargs)

    def _after_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        with self.shield:
            super()._after_step(optimizer, args, kwargs)

    def line(self) -> None:
        if self.shield.failure is None:
            with self.shield:
                super().line()

    def ask(self, saved: Saved, need: evidence.Backward) -> None:
        super().ask(saved, need)
        self._refused = not saved.untouched()

    def note(self, name: str, author: Author, written: Sequence[torch.Tensor]) -> None:
        super().note(name, author, written)
        for tensor in written:  # torch itself will refuse these, so nobody will ask for the value
            for saved in self.saved.waiting(tensor):
                if saved.value is not None and not saved.foreign and version_of(saved.alias) != saved.version:
                    saved.value = None

    def _past_error(self, error: RuntimeError, *rest: Any) -> Any:
        raise error

    def _run_backward(
        self,
        event: evidence.Backward,
        roots: Sequence[torch.Tensor],
        leaves: Sequence[torch.Tensor],
        call: Callable[[bool], Any],
    ) -> tuple[Any, bool]:
        outer, self._current = self._current, event
        self._notes_use = event.retained or self.kept_graphs.following
        try:
            return call(False), False
        finally:
            used, self._used = self._used, []  # what was used would be held until the next backward
            self._current = outer
            self.kept_graphs.passed(event, used)


def _as_torch(saved: Saved) -> torch.Tensor:
    """What a backward gets where nobody watches: what is there now, if torch's own check lets it."""
    with unobserved():
        if not saved.untouched():
            raise refusal("modified", saved, "the report below names the line that changed it.")
        leaf = saved.origin() if saved.origin is not None else None
        return saved.alias if leaf is None else leaf.detach()
