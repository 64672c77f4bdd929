"""Writes that torch itself does not see, and that make a gradient wrong without an error.

What the version counter misses: ``.data`` and other detached aliases, fused optimizer steps, running statistics of
batch norm (these the recorder sees as calls), and further

- memory that numpy or another library shares: no call shows the write. What is saved there is cloned at once, and
  compared after every line of the user's that runs, until a line has changed it;
- tensors that a custom Function keeps on ``ctx`` without ``save_for_backward``, or overwrites without ``mark_dirty``;
- writes through ``detach()`` or ``.data`` into a tensor that is in a graph, before anything saved it: the values
  change, the graph never hears of it.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..places import user_stack
from . import evidence
from .gradients import graph_of
from .operations import plain_name
from .recorder import LiveWrite, Recorder, Saved, Stack, differ, flat, version_of
from .shadows import storage_key

_EXPORTS = frozenset({"numpy", "__array__", "__dlpack__"})
_DATA_GET = torch.Tensor.data.__get__  # type: ignore[attr-defined]
_FOREIGN_LIMIT = 256 * 2**20  # bytes of foreign memory that are kept to be compared


class HiddenRecorder(Recorder):
    """The recorder that looks closer. ``track``: a write through a detached alias is made part of the graph, which is
    what the reference needs; else it is only noted."""

    def __init__(self, sources: Any, *, track: bool = True, **options: Any) -> None:
        super().__init__(sources, **options)
        self.track = track
        self._foreign: list[Saved] = []
        self._foreign_bytes = 0
        self._lines = LineWatch(self._after_line)
        self._aliased: dict[int, torch.Tensor] = {}  # storages of graph tensors that have a detached alias
        self._untracked: dict[int, LiveWrite] = {}
        self._used_after: dict[int, torch.Tensor] = {}  # tensors that were read after such a write
        self._inside: list[list[tuple[int, LiveWrite]]] = []  # writes within a custom Function's forward
        self._plain_apply = torch.autograd.Function.__dict__["apply"]

    def __enter__(self) -> HiddenRecorder:
        def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
            return self._apply(self._plain_apply.__func__, cls, args, kwargs)

        torch.autograd.Function.apply = classmethod(apply)  # type: ignore[assignment,method-assign]
        super().__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)
        torch.autograd.Function.apply = self._plain_apply  # type: ignore[method-assign]
        self._lines.stop()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = plain_name(func)
        if name in _EXPORTS and args:
            for saved in self._waiting(args[0]):
                self._compare_later(saved)
        elif args and (name == "detach" or func == _DATA_GET) and args[0].requires_grad and not args[0].is_leaf:
            key = storage_key(args[0])
            if key is not None:
                self._aliased.setdefault(key, args[0])
        elif self._untracked:
            for tensor in flat(args, kwargs or {}):
                if tensor.requires_grad and (key := storage_key(tensor) or 0) in self._untracked:
                    self._used_after[key] = tensor
        return super().__torch_function__(func, types, args, kwargs)

    # ---- writes through detached aliases ------------------------------------------------------------------------

    def _write(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], written: list[Any]) -> Any:
        hit = [t for t in written if not t.requires_grad and self._aliased_by(t)]
        if not hit:
            return super()._write(func, args, kwargs, written)
        if self.track and not any(self._waiting(t) for t in hit):
            for tensor in hit:
                self._shadows.cast(self._aliased[storage_key(tensor) or 0], whole=True)
            new_args, new_kwargs = self._shadows.replace(args, kwargs)
            result = func(*new_args, **new_kwargs)
        else:
            result = super()._write(func, args, kwargs, written)
        stack = user_stack(sys._getframe(1))
        for tensor in hit:
            write = LiveWrite(stack, self.tick(), plain_name(func), "user", version_of(tensor))
            self._untracked.setdefault(storage_key(tensor) or 0, write)
        return result

    def _aliased_by(self, tensor: torch.Tensor) -> bool:
        found = self._aliased.get(storage_key(tensor) or 0)
        # A key may have been used again since: the tensor in the table has to live there still.
        return found is not None and storage_key(found) == storage_key(tensor)

    def _look_at(self, saved: Saved, tensor: torch.Tensor) -> None:
        if tensor.device.type == "cpu" and not _resizable(tensor):
            self._compare_later(saved)

    def ask(self, saved: Saved, need: evidence.Backward) -> None:
        before = len(self.clashes)
        super().ask(saved, need)
        if len(self.clashes) > before:
            return
        if saved.foreign and differ(saved.value, saved.alias):
            self._after_line(())
            writes = self._writes_since(saved)
            self._clash("silent", saved, need, writes[0] if writes else None)

    def around_backward(
        self, event: evidence.Backward, roots: Sequence[torch.Tensor], call: Callable[[bool], Any]
    ) -> tuple[Any, bool]:
        self._note_used(event, roots)
        return super().around_backward(event, roots, call)

    def _note_used(self, event: evidence.Backward, roots: Sequence[torch.Tensor]) -> None:
        """A backward that goes through a tensor whose values were changed behind the graph's back."""
        if not self._used_after:
            return
        _, _, nodes = graph_of(roots)
        for key, tensor in self._used_after.items():
            base = self._aliased.get(key)
            if base is not None and base.grad_fn in nodes:
                saved = Saved(tensor, (), self.tick())
                self._clash("silent", saved, event, self._untracked[key])

    # ---- foreign memory -----------------------------------------------------------------------------------------

    def _compare_later(self, saved: Saved) -> None:
        size = saved.alias.numel() * saved.alias.element_size()
        if saved.foreign or self._foreign_bytes + size > _FOREIGN_LIMIT:
            return
        if saved.value is None:
            with torch.no_grad():
                saved.value = saved.alias.clone()
        saved.foreign = True
        self._foreign_bytes += size
        self._foreign.append(saved)
        self._lines.start()

    def _after_line(self, stack: Stack) -> None:
        """A line of the user's has run: has it changed what is saved in foreign memory?"""
        for saved in list(self._foreign):
            if sys.getrefcount(saved) <= 3:  # only our list, the copy of it and the loop hold it: torch let it go
                self._foreign.remove(saved)
                self._foreign_bytes -= saved.alias.numel() * saved.alias.element_size()
            elif differ(saved.value, saved.alias) and not self._writes_since(saved):
                self.log(saved.key or 0, LiveWrite(stack, self.tick(), "", "user", saved.version))

    # ---- custom Functions ---------------------------------------------------------------------------------------

    def _matters(self, tensor: torch.Tensor) -> bool:
        return super()._matters(tensor) or bool(self._inside)

    def log(self, key: int, write: LiveWrite) -> None:
        super().log(key, write)
        if self._inside:
            self._inside[-1].append((key, write))

    def _apply(self, plain: Callable[..., Any], cls: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        inputs = [(a, version_of(a)) for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
        self._inside.append([])
        try:
            result = plain(cls, *args, **kwargs)
        finally:
            writes = self._inside.pop()
        node = _node_of(result, cls)
        if node is not None:
            self._watch_node(node, inputs, writes, user_stack(sys._getframe(2)))
        return result

    def _watch_node(
        self, node: Any, inputs: list[tuple[torch.Tensor, int]], writes: list[tuple[int, LiveWrite]], stack: Stack
    ) -> None:
        kept = [v for v in vars(node).values() if isinstance(v, torch.Tensor) and v.numel()]
        wanted = [Saved(tensor, stack, self.tick()) for tensor in kept]
        for saved in wanted:
            if saved.key is not None:
                self._remember(saved, saved.key)
        dirty = {id(t) for t in (getattr(node, "dirty_tensors", None) or ())}
        overwritten = [
            (tensor, write)
            for tensor, version in inputs
            if version_of(tensor) != version and id(tensor) not in dirty
            for key, write in writes[:1]
            if key == storage_key(tensor)
        ]
        if not wanted and not overwritten:
            return

        def before_backward(grads: Any) -> None:
            if self._current is None:
                return
            for saved in wanted:
                if self._writes_since(saved) and differ(saved.value, saved.alias):
                    self._clash("silent", saved, self._current, self._writes_since(saved)[0])
            for tensor, write in overwritten:
                saves = [s for s in self._waiting(tensor) if s.clock > write.clock]
                self._clash("silent", saves[0] if saves else Saved(tensor, stack, self.tick()), self._current, write)

        node.register_prehook(before_backward)


class Watcher(HiddenRecorder):
    """Watches a cell while it runs for real: notes what it sees and leaves every value and every error as it was."""

    def __init__(self, sources: Any) -> None:
        super().__init__(sources, track=False)
        self._watching = True

    def leave(self) -> None:
        """Ends the watch in the middle of a run; what is yet to come runs at full speed."""
        if self._watching:
            self._watching = False
            super().__exit__(None, None, None)

    def __exit__(self, *exc: Any) -> None:
        if self._watching:
            self._watching = False
            super().__exit__(*exc)

    def _answer(self, saved: Saved) -> torch.Tensor:
        for write in self._writes_since(saved):
            if write.swapped is not None:
                return write.swapped.detach()
        return saved.alias

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

    def _write_overlapping(self, func: Callable[..., Any], args: Any, kwargs: Any, tensor: torch.Tensor) -> Any:
        return func(*args, **kwargs)

    def _go_on(self, error: RuntimeError, *rest: Any) -> Any:
        raise error

    def around_backward(
        self, event: evidence.Backward, roots: Sequence[torch.Tensor], call: Callable[[bool], Any]
    ) -> tuple[Any, bool]:
        self._note_used(event, roots)
        outer, self._current, self._used = self._current, event, []
        try:
            return call(False), False
        finally:
            self._current = outer


class LineWatch:
    """Calls ``then`` with the stack of each line of the user's, once that line has run. Silent beside a debugger."""

    def __init__(self, then: Callable[[Stack], None]) -> None:
        self._then = then
        self._last: Stack = ()
        self._on = False

    def start(self) -> None:
        if self._on or sys.gettrace() is not None:
            return
        self._on = True
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None:  # frames that run already are traced from their next line on
            if frame.f_code.co_filename and user_stack(frame)[:1] == ((frame.f_code, frame.f_lasti),):
                if not self._last:
                    self._last = user_stack(frame)
                frame.f_trace = self._trace
            frame = frame.f_back
        sys.settrace(self._trace)

    def stop(self) -> None:
        if self._on and sys.gettrace() == self._trace:
            sys.settrace(None)
        self._on = False

    def _trace(self, frame: types.FrameType, event: str, argument: Any) -> Any:
        if not self._on:
            return None
        stack = user_stack(frame)
        if not stack or stack[0][0] is not frame.f_code:
            return None  # a library's frame: its lines are none of ours
        if event in ("line", "return"):
            self._then(self._last)
            self._last = stack
        return self._trace


def _resizable(tensor: torch.Tensor) -> bool:
    """False for memory that another library owns or has been shown: such a storage cannot be resized any more."""
    try:
        return bool(tensor.untyped_storage().resizable())
    except (RuntimeError, NotImplementedError):
        return True


def _node_of(result: Any, cls: Any) -> Any:
    outputs = result if isinstance(result, tuple) else (result,)
    for output in outputs:
        node = getattr(output, "grad_fn", None) if isinstance(output, torch.Tensor) else None
        if node is not None and type(node) is getattr(cls, "_backward_cls", None):
            return node
    return None
