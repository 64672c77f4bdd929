"""The recorder that sees all events, on behalf of the detectors."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.autograd.function import FunctionCtx

from ...source.location import user_stack
from ...storage import storage_key
from ...torch_private import on_top, pop_function_mode, push_function_mode, unobserved
from .. import evidence
from ..author import Author
from ..observed import LiveWrite, Saved, Stack, differ
from ..operations import plain_name
from ..past_errors import reads_own_part
from ..recorder import Recorder
from ..saved_tensors import changed, read_now
from ..tracked_copies import read_from_copies
from ..wrapped import replace
from . import DETECTORS
from .aliases import EXPORTS, GRAD_GET, NUMBERS, shares
from .cuts import Place
from .events import EVENTS, Applied, Call, Detector, Passing, Policy
from .foreign_memory import ForeignMemory
from .grad_modes import GradModes
from .handed_gradients import HandedGradients
from .past_the_graph import PastTheGraph
from .python_nodes import PythonNodes
from .recomputed import Recomputed
from .second_run import SecondRun
from .unchecked import Unchecked
from .untrained import Untrained


class EventStream(Recorder):
    """Records one run under a policy, for all detectors."""

    def __init__(self, sources: Any, policy: Policy, **options: Any) -> None:
        super().__init__(sources, **options)
        self.policy = policy
        self.continues = policy.reference
        self.passing: Passing | None = None  # the backward that is running
        self.turned = False  # a node runs for the second time, and gets the other values
        self.packed_elsewhere = False  # hooks of others have packed something
        self.curious: set[Detector] = set()  # detectors that hear of every call
        self._due: list[Callable[[], None]] = []  # when the operation under way is over
        self._within_operation = 0  # code of the person's that an operation calls
        self._putting = contextlib.ExitStack()
        self._thread = threading.get_ident()
        self._dirty: list[set[int]] = []  # of the Functions under way
        self.detectors = [kind(self) for kind in DETECTORS]
        self._memory, self._unheard, self._nodes, self._second, self._handed = (
            self.detector(kind) for kind in (ForeignMemory, PastTheGraph, PythonNodes, SecondRun, HandedGradients)
        )
        self._recomputed, self._untrained, self._unchecked, self._modes = (
            self.detector(kind) for kind in (Recomputed, Untrained, Unchecked, GradModes)
        )
        self.open_question = False
        self._hearing: dict[str, list[Callable[..., Any]]] = {
            event: [
                getattr(d, event) for d in self.detectors if getattr(type(d), event) is not getattr(Detector, event)
            ]
            for event in EVENTS
        }

    def detector(self, kind: type[Any]) -> Any:
        """The detector of a kind."""
        return next(d for d in self.detectors if isinstance(d, kind))

    def hook(self, ours: Callable[..., Any]) -> Callable[..., Any]:
        """A hook of ours as it is registered."""
        return ours

    # ---- what detectors ask of the run ------------------------------------------------------------------------------

    def waiting(self, tensor: torch.Tensor) -> list[Saved]:
        return self.saved.waiting(tensor)

    def remember(self, saved: Saved) -> None:
        self.saved.remember(saved)

    def keep(self, saved: Saved) -> bool:
        return self.saved.keep(saved)

    def writes_since(self, saved: Saved) -> list[LiveWrite]:
        return self.saved.writes_since(saved)

    def changed(self, saved: Saved, writes: list[LiveWrite]) -> bool:
        return changed(saved, writes)

    def changed_values(self) -> set[int]:
        found: set[int] = self._memory.changed()
        for key in tuple(self.saved.writes):
            for saved in self.saved.waiting_at(key):
                writes = self.saved.writes_since(saved)
                if writes and saved.untouched() and changed(saved, writes):
                    found.add(id(saved))
        return found

    def compare_later(self, saved: Saved) -> None:
        self._memory.compare_later(saved)

    def look_now(self, saved: Saved) -> None:
        self._memory.look(saved)

    def line(self) -> None:
        if self._due:
            self.operation_over()
        for heard in self._hearing["line"]:
            heard()

    def others_run(self) -> bool:
        """Whether code of the user's runs in another thread, so that a line need not have written what has changed."""
        mine = sys._getframe()
        return any(
            frame is not mine and user_stack(frame)
            for thread, frame in sys._current_frames().items()
            if thread != threading.get_ident()
        )

    def suspect(self, saved: Saved, need: evidence.Backward, write: LiveWrite | None) -> None:
        if not self._second.suspect((saved, need, write)):
            self.conflict("silent", saved, need, write)

    def put(self, owner: Any, name: str, value: Any) -> None:
        if name in vars(owner):
            replace(self._putting, owner, name, value)
        else:
            self._putting.callback(delattr, owner, name)
            setattr(owner, name, value)

    def at_end(self, call: Callable[[], None]) -> None:
        self._putting.callback(call)

    def is_ours(self, hooks: Any) -> bool:
        return hooks is self._hooks

    @contextlib.contextmanager
    def seeing(self) -> Iterator[None]:
        self._within_operation += 1
        pushed = not on_top(self)
        if pushed:
            push_function_mode(self)
        try:
            yield
        finally:
            self._within_operation -= 1
            if pushed:
                pop_function_mode()

    def block(self) -> Stack:
        block: Stack = self._modes.block
        return block

    def cut_off(self, leaf: torch.Tensor) -> list[Place]:
        found: list[Place] = self._untrained.cut_off(leaf)
        return found

    def here(self) -> Stack:
        return user_stack(sys._getframe(2))

    def about_to_write(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> list[torch.Tensor]:
        return [tensor for tensor in self.writers.written(func, args, kwargs) if self.saved.keep_all(tensor)]

    def wrote(self, name: str, stack: Stack, written: list[torch.Tensor]) -> None:
        self.counts["writes"] += 1
        self.note(name, Author(stack, "user", None), written)

    def keep_all(self, tensor: torch.Tensor) -> None:
        self.saved.keep_all(tensor)

    @property
    def samples(self) -> bool:
        return bool(self._memory.sampling)

    def after_operation(self, call: Callable[[], None]) -> None:
        self._due.append(call)

    def operation_over(self) -> None:
        """Does what is due now. To be asked where ``_due`` is not empty."""
        if not self._within_operation:
            due, self._due = self._due, []
            with self.ours:
                for call in due:
                    call()

    def sample(self, saved: Saved) -> None:
        if self._within_operation:
            self.after_operation(functools.partial(self._memory.sample, saved))
        else:
            self._memory.sample(saved)

    def checkpoint_begins(self, stack: Stack) -> Any:
        return self._recomputed.open(stack)

    def checkpoint_ends(self, region: Any) -> None:
        self._recomputed.close(region)

    def cause(self, region: Any) -> LiveWrite:
        cause: LiveWrite = self._recomputed.cause(region)
        return cause

    def cut(self, stack: Stack) -> None:
        self._untrained.cut(stack)

    def uncovered(self, kind: str, number: int = 1) -> None:
        self.unchecked[kind] += number

    @property
    def unchecked(self) -> Counter[str]:
        """What was not looked at, by kind."""
        counts: Counter[str] = self._unchecked.counts
        return counts

    # ---- the events -------------------------------------------------------------------------------------------------

    def _put_on(self, on: contextlib.ExitStack) -> None:
        plain_mark = FunctionCtx.mark_dirty

        def mark_dirty(ctx: Any, *tensors: Any) -> None:
            if self._dirty:
                self._dirty[-1].update(id(tensor) for tensor in tensors)
            plain_mark(ctx, *tensors)

        for heard in self._hearing["ends"]:
            on.callback(heard)
        replace(on, FunctionCtx, "mark_dirty", mark_dirty)
        super()._put_on(on)
        self._putting = on
        for heard in self._hearing["begins"]:
            heard()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        __tracebackhide__ = True
        if self._current is not None:
            result = self._within_backward(func, args, kwargs or {})
            if self._due:
                self.operation_over()
            return result
        if not self.curious:
            try:
                plain = func in self.writers.plain
            except TypeError:
                plain = False
            if plain:
                result = super().__torch_function__(func, types, args, kwargs)
                if self._due:
                    self.operation_over()
                return result
        call = Call(func, plain_name(func), args, kwargs or {}, self.writers.written(func, args, kwargs or {}))
        for heard in self._hearing["calls"]:
            heard(call)
        result = super().__torch_function__(func, types, args, kwargs)
        if self._due:
            self.operation_over()
        if self.curious:
            for heard in self._hearing["called"]:
                heard(call, result)
        return result

    def _within_backward(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        written = self.writers.written(func, args, kwargs)
        if not written and not self.curious and plain_name(func) not in EXPORTS:
            return self._carry_out(func, args, kwargs)
        call = Call(func, plain_name(func), args, kwargs, written)
        for heard in self._hearing["calls_in_backward"]:
            heard(call)
        wanted = [tensor for tensor in written if self.saved.keep_all(tensor)]
        outer = self._training_statistics
        if call.name == "batch_norm":
            self._training_statistics = tuple(storage_key(t) for t in written)
        try:
            result = self._carry_out(func, args, kwargs)
        finally:
            self._training_statistics = outer
        if wanted:
            self.note(call.name, Author(user_stack(sys._getframe(1)), "user", None), wanted)
            self._second.watch(self.changed_values())
        for heard in self._hearing["called_in_backward"]:
            heard(call, result)
        return result

    def _write(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], written: list[Any]) -> Any:
        __tracebackhide__ = True
        call = Call(func, plain_name(func), args, kwargs, written)
        with unobserved():
            meant = self.policy.reference and reads_own_part(func, args, kwargs, written)
        if meant and not self.caught.here(RuntimeError()):
            args, kwargs = read_from_copies(written, args), read_from_copies(written, kwargs)
            call = Call(func, call.name, args, kwargs, written)
        with unobserved():
            hits = self._unheard.hits(call) if self._unheard.cares(written) else []
        if not hits:
            return super()._write(func, args, kwargs, written)
        tracked = self._unheard.track(call, hits)
        if tracked is None:
            result = super()._write(func, args, kwargs, written)
        else:
            self.counts["writes"] += 1
            with torch.enable_grad():
                result = func(*tracked[0], **tracked[1])
            if args and result is tracked[0][0] and any(hit.base is args[0] for hit in hits):
                result = args[0]  # ``h *= mask`` leaves the name with the tensor that had it
        self._unheard.note(call, hits)
        return result

    def log(self, key: int, write: LiveWrite) -> None:
        super().log(key, write)
        for heard in self._hearing["logs"]:
            heard(key, write)

    def _look_at(self, saved: Saved, tensor: torch.Tensor) -> None:
        for heard in self._hearing["saved"]:
            heard(saved, tensor)

    def _is_plain(self, func: Callable[..., Any]) -> bool:
        heard = func in (torch.tensor, GRAD_GET, *NUMBERS)  # copies without history, and what is read off a tensor
        return super()._is_plain(func) and not shares(func) and not heard

    def _nobody_cares(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], written: list[Any]
    ) -> bool:
        with unobserved():
            cares = self._unheard.cares(written)
        return not cares and super()._nobody_cares(func, args, kwargs, written)

    def _matters(self, tensor: torch.Tensor) -> bool:
        return super()._matters(tensor) or bool(self._nodes.busy)

    def _stepping_aside(self, plain: Callable[[str], Any]) -> Callable[[str], Any]:
        aside = super()._stepping_aside(plain)

        def disable_saved_tensors_hooks(message: str) -> Any:
            self.uncovered("transforms")
            return aside(message)

        return disable_saved_tensors_hooks

    def _making(self, plain: Callable[..., Any]) -> Any:
        made: Any = super()._making(plain)

        def __new__(cls: type, *args: Any, **kwargs: Any) -> Any:
            parameter = made.__func__(cls, *args, **kwargs)
            with self.ours:
                given = args or tuple(kwargs.values())
                self._untrained.leaf_made(parameter, given, user_stack(sys._getframe(1)), parameter=True)
            return parameter

        return staticmethod(__new__)

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        for heard in self._hearing["steps"]:
            heard(optimizer)
        super()._before_step(optimizer, args, kwargs)

    def _after_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        super()._after_step(optimizer, args, kwargs)
        for heard in self._hearing["step_ends"]:
            heard(optimizer)

    # ---- backward ---------------------------------------------------------------------------------------------------

    def _note_backward(self, *about: Any) -> None:
        super()._note_backward(*about)
        if self._current is not None and about:
            with self.ours:
                for heard in self._hearing["backward_within"]:
                    heard(about[0])

    def around_backward(
        self,
        event: evidence.Backward,
        roots: Sequence[torch.Tensor],
        leaves: Sequence[torch.Tensor],
        call: Callable[[bool], Any],
        wanted: Sequence[torch.Tensor] = (),
    ) -> tuple[Any, bool]:
        if threading.get_ident() != self._thread:
            self.uncovered("threads")
            return call(False), False
        if self.is_past(event):
            return super().around_backward(event, roots, leaves, call)
        outer, self.passing = self.passing, Passing(event, roots, wanted)
        passing = self.passing
        result = None
        if self._due:
            self.operation_over()
        for heard in self._hearing["backward_begins"]:
            heard(passing)
        try:
            result, passing.given_up = self._run_backward(event, roots, leaves, call)
            return result, passing.given_up
        finally:
            if self._due:
                self.operation_over()
            for heard in self._hearing["backward_ends"]:
                heard(passing, result)
            for handle in passing.handles:
                handle.remove()
            self.passing = outer

    def _run_backward(
        self,
        event: evidence.Backward,
        roots: Sequence[torch.Tensor],
        leaves: Sequence[torch.Tensor],
        call: Callable[[bool], Any],
    ) -> tuple[Any, bool]:
        return super().around_backward(event, roots, leaves, call)

    def ask(self, saved: Saved, need: evidence.Backward) -> None:
        super().ask(saved, need)
        for heard in self._hearing["asked"]:
            heard(saved, need)

    def _silent(self, saved: Saved, need: evidence.Backward, write: LiveWrite | None) -> None:
        self.suspect(saved, need, write)

    def _unpack(self, saved: Saved) -> torch.Tensor:
        return self._other_answer(saved) if self.turned else super()._unpack(saved)

    def _answer(self, saved: Saved) -> torch.Tensor:
        if not self.policy.reference:
            return read_now(saved, self.saved.writes_since(saved))
        # What was cloned to be compared is read where it lies, for a backward may write there.
        return saved.alias if saved.compared and not differ(saved.value, saved.alias) else super()._answer(saved)

    def _other_answer(self, saved: Saved) -> torch.Tensor:
        return read_now(saved, self.saved.writes_since(saved)) if self.policy.reference else super()._answer(saved)

    # ---- custom Functions -------------------------------------------------------------------------------------------

    def _apply(self, plain: Callable[..., Any], cls: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        inputs = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
        for heard in self._hearing["applies"]:
            heard(cls, args, inputs)
        self._dirty.append(set())
        node, result = None, None
        try:
            result = super()._apply(plain, cls, args, kwargs)
            node = _node_of(result, cls)
        finally:
            if self._due:
                self.operation_over()
            dirty = frozenset(self._dirty.pop())
            applied = Applied(cls, node, inputs, result, dirty, user_stack(sys._getframe(2)))
            for heard in self._hearing["applied"]:
                heard(applied)
        return result


def _node_of(result: Any, cls: Any) -> Any:
    outputs = result if isinstance(result, tuple) else (result,)
    for output in outputs:
        node = getattr(output, "grad_fn", None) if isinstance(output, torch.Tensor) else None
        if node is not None and type(node) is getattr(cls, "_backward_cls", None):
            return node
    return None
