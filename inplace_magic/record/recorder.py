"""The recorder: who saved a tensor, who wrote into it, which backward needed it; with exact places, past every conflict.

NOTE [Recorder]. Two listeners work together. A saved-tensors hook sees each tensor that autograd keeps, and gives it
back when a backward asks. A function mode sees each call from Python that writes. Before a write, every saved tensor
in that storage that is still wanted is cloned, once: only what is both saved and written is ever copied. When a
backward then asks for a tensor that was written since, that is a conflict. The recorder notes it and hands out the
value as it was saved, so the replay goes on, finds the next conflict, and its gradients are those that the code as
written would have had. Hooks switch torch's own version check off, hence the comparison is made here.

A function mode and not a dispatch mode: a dispatch mode loses the version bump of foreach operations, lets refused
writes pass, and costs three times as much. What it would see beyond (writes from C++ alone) bumps the version, so
such a conflict is still found, without its writing line.

Saved tensors of a graph that was made before the replay have no hooks. Their error is torch's own; it is noted as a
conflict whose places are not known, and the backward is given up so that the replay can go on.
"""

from __future__ import annotations

import contextlib
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.autograd.function import FunctionCtx
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode

from .. import torch_private
from ..families import RAISED_AT_WRITE, family_of, is_of_base, overlaps_input
from ..gradients.backward import CLOSELY
from ..source.document import Sources
from ..source.location import caller, kind_of, user_stack
from ..torch_private import (
    base_of,
    current_node,
    next_sequence_number,
    pop_function_mode,
    push_function_mode,
    sequence_number,
    unobserved,
    version_of,
)
from ..torch_private import saved_tensors_hooks as saved_tensors_hooks_on_top
from . import evidence
from .light_steps import LightSteps, by_itself
from .observed import LiveConflict, LiveWrite, Saved, Stack, Waiting, differ
from .operations import arguments, out_targets, own_operands, plain_name, writer
from .trace import Trace
from .tracked_copies import Shadows, read_from_copies, retry, storage_key

_UNKNOWN_VERSION = -1
_LATEST_KEPT = 256  # storages, before those that are gone are let go of
_ELEMENTS_A_CALL = 1000  # saved in the time that one small operation takes, roughly
_WRITES_KEPT = 64  # for each storage: the first ones tell who broke a saved tensor
# What a leaf is asked about itself is answered by itself, even when its values are read from a shadow.
_ABOUT_ITSELF = frozenset({"grad", "_grad", "requires_grad", "is_leaf", "grad_fn", "_version", "_base"})
_OWN_METHODS = frozenset({"register_hook", "register_post_accumulate_grad_hook", "retain_grad", "requires_grad_"})
_DATA_SET = torch.Tensor.data.__set__  # type: ignore[attr-defined]


class Recorder(TorchFunctionMode):
    """Records one run of cells. Enter it around the run; read ``clashes`` afterwards.

    ``update_leaves``: a refused write into a leaf is made as an update outside the graph (what an optimizer does)
    instead of being tracked. ``keep_graphs``: no graph is freed, and who would have freed it is noted. ``light``:
    the steps of optimizers leave some parameters as they are. ``memory`` is how many bytes of overwritten values are
    kept at a time; None is no limit.
    """

    goes_on = True  # past what torch refuses, as the code means it
    traces = True  # notes which call created which nodes

    def __init__(
        self,
        sources: Sources,
        *,
        update_leaves: bool = False,
        keep_graphs: bool = False,
        light: LightSteps | None = None,
        memory: int | None = None,
    ) -> None:
        super().__init__()
        self.sources = sources
        self.update_leaves = update_leaves
        self.keep_graphs = keep_graphs
        self.light = light
        self.memory = memory
        self._kept = 0
        self.clashes: list[LiveConflict] = []
        self._clock = 0
        self._saved: dict[int, Waiting] = {}
        self._writes: dict[int, list[LiveWrite]] = {}
        self._writers: dict[Any, Any] = {}
        self._made: dict[int, tuple[StorageWeakRef, Stack]] = {}  # inference tensors: where they came from
        self._latest: dict[int, tuple[StorageWeakRef, LiveWrite]] = {}  # the last write into a storage with a history
        self._shadows = Shadows()
        self._shadowed = self._shadows.table
        self._plain: set[Any] = set()  # functions that can write only through ``out=``
        self._call = 0  # counts the calls that the mode sees
        self._elements = 0  # of what was saved
        self._call_stack: tuple[int, Stack] = (-1, ())
        self._carrying = type(self)._carry_out.__code__
        self.ours: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()  # around what is not the person's
        self._step: tuple[Any, list[torch.Tensor], tuple[Stack, str, Any]] | None = None  # an optimizer's, under way
        self.trace = Trace()
        self._roots: Sequence[torch.Tensor] = ()  # of the backward under way
        self._current: evidence.Backward | None = None
        self._used: list[Saved] = []
        self._notes_use = keep_graphs
        self._training_statistics: tuple[int | None, ...] = ()
        self._own_operands: frozenset[int] = frozenset()  # storages that the call under way both reads and writes
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
        self._within = torch_private.around_backward(self._note_backward, self)
        self._backward_at: Stack = ()
        self._clashed: set[tuple[Any, ...]] = set()
        self._saving_at: Stack = ()
        self._on = contextlib.ExitStack()
        self.counts = {"saves": 0, "writes": 0, "unkept": 0}

    def __enter__(self) -> Recorder:
        with contextlib.ExitStack() as on:
            self._put_on(on)
            self._on = on.pop_all()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._on.close()

    def _put_on(self, on: contextlib.ExitStack) -> None:
        """Puts on all that listens; ``on`` learns how each is taken off, so that what fails half-way leaves nothing."""
        replace(on, FunctionCtx, "save_for_backward", self._saving(FunctionCtx.save_for_backward))
        graph = torch.autograd.graph
        replace(on, graph, "disable_saved_tensors_hooks", self._stepping_aside(graph.disable_saved_tensors_hooks))
        replace(on, torch.nn.Parameter, "__new__", self._making(torch.nn.Parameter.__new__))
        on.callback(register_optimizer_step_pre_hook(self._before_step).remove)
        on.callback(register_optimizer_step_post_hook(self._after_step).remove)
        on.enter_context(self._within)
        on.enter_context(self._hooks)
        on.callback(self._take_off_mode)
        super().__enter__()

    def _take_off_mode(self) -> None:
        self._end_step()
        if torch_private.on_top(self):  # else an interrupt came while torch had us off for a moment
            super().__exit__(None, None, None)

    def _saving(self, plain: Callable[..., None]) -> Callable[..., None]:
        """``ctx.save_for_backward`` that notes its line: torch packs what it is given when forward is over."""

        def save_for_backward(ctx: Any, *tensors: Any) -> None:
            with self.ours:
                self._saving_at = user_stack(sys._getframe(1))
            plain(ctx, *tensors)

        return save_for_backward

    def _stepping_aside(self, plain: Callable[[str], Any]) -> Callable[[str], Any]:
        """``torch.func`` refuses to run under hooks; while it runs, ours are off. Those of others it still meets."""

        @contextlib.contextmanager
        def disable_saved_tensors_hooks(message: str) -> Iterator[None]:
            ours = False
            with self.ours:
                top = saved_tensors_hooks_on_top()
                ours = top is not None and top[0] == self._pack
                if ours:
                    self._hooks.__exit__()
            try:
                with plain(message):
                    yield
            finally:
                if ours:
                    self._hooks.__enter__()

        return disable_saved_tensors_hooks

    def _making(self, plain: Callable[..., Any]) -> Any:
        """``nn.Parameter(data)``, which no function mode sees, and which refuses an inference tensor."""

        def __new__(cls: type, data: Any = None, requires_grad: bool = True) -> Any:
            try:
                return plain(cls, data, requires_grad)
            except RuntimeError as error:
                if not self.goes_on or family_of(error) != "inference" or not isinstance(data, torch.Tensor):
                    raise
                clash = self._refuse("inference", cls, str(error))
                clash.value, clash.made = data, self._made_at([data])
                return plain(cls, data.clone(), requires_grad)

        return staticmethod(__new__)

    def _note_backward(self, *about: Any) -> None:
        self._backward_at = user_stack(sys._getframe(1))

    def tick(self) -> int:
        """The next moment of the recorder's clock."""
        self._clock += 1
        return self._clock

    @property
    def work(self) -> int:
        """How much the run has computed so far: a measure that does not depend on what else the machine does."""
        return self._call + self._elements // _ELEMENTS_A_CALL

    def value_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor whose values a user's tensor has, as the code means it: its tracked copy if it has one."""
        return self._shadows.of(tensor) if self._shadows else tensor

    # ---- what is saved ------------------------------------------------------------------------------------------

    def _pack(self, tensor: torch.Tensor) -> Saved:
        return self._packed(tensor, caller())

    def _packed(self, tensor: torch.Tensor, frame: types.FrameType | None) -> Saved:
        self.counts["saves"] += 1
        self._elements += tensor.numel()
        if self._step is not None:
            self._end_step()  # it has raised, and somebody has caught that
        if frame is None:
            stack = self._backward_at
        elif frame.f_code is self._carrying:  # all that one call saves is saved at one place
            call, stack = self._call_stack
            if call != self._call:
                stack = user_stack(frame)
                self._call_stack = (self._call, stack)
        else:
            stack = user_stack(frame)
        # The line in forward() lies one frame deeper than the line that applies the function and now packs.
        if self._saving_at:
            if self._saving_at[1:] == stack:
                stack = self._saving_at
            else:
                self._saving_at = ()
        self._clock += 1
        saved = Saved(tensor, stack, self._clock)
        if saved.key is not None:
            for key in saved.keys if saved.more else (saved.key,):
                self._remember(saved, key)
            if self._training_statistics and saved.key in self._training_statistics:
                saved.lost = True  # backward checks their version, and does not read them
            else:
                self._look_at(saved, tensor)
            if saved.key in self._own_operands and saved.value is None:
                self.keep(saved)  # `y *= y` saves y and overwrites it: nothing comes between the two
        return saved

    def _look_at(self, saved: Saved, tensor: torch.Tensor) -> None:
        """For those who look closer."""

    def _remember(self, saved: Saved, key: int) -> None:
        waiting = self._saved.get(key)
        if waiting is None:
            waiting = self._saved[key] = Waiting()
            self._writes.pop(key, None)
        elif not waiting.alive():
            waiting.clear()
            self._writes.pop(key, None)  # nobody held that storage, so its address may belong to another one now
        elif len(waiting) >= waiting.prune_at:
            waiting.prune()
        waiting.fresh.append(weakref.ref(saved))

    def _unpack(self, saved: Saved) -> torch.Tensor:
        current = self._current
        if current is not None:
            with unobserved():  # a backward runs under the mode, and this is asked of every tensor
                version = version_of(saved.alias)
            unchanged = saved.key not in self._writes and not saved.foreign and version == saved.version
            if saved.freed is not None or not unchanged:
                self.ask(saved, current)
            if self._notes_use and saved.freed is None:  # else torch lets it go, and nobody asks again
                self._used.append(saved)
        return self._answer(saved)

    def _answer(self, saved: Saved) -> torch.Tensor:
        return saved.alias if saved.value is None else saved.value

    def ask(self, saved: Saved, need: evidence.Backward) -> None:
        """A backward asks for ``saved``: is it still what it was?"""
        if saved.freed is not None and saved.freed is not need:
            self._clash("second_backward", saved, need, None)
        writes = self._writes_since(saved)
        if version_of(saved.alias) != saved.version:
            first = next((w for w in writes if w.version > saved.version), writes[0] if writes else None)
            self._clash("modified", saved, need, first)
        elif writes and self._changed(saved, writes):
            self._silent(saved, need, writes[0])

    def _silent(self, saved: Saved, need: evidence.Backward, write: LiveWrite | None) -> None:
        """A value has changed, and the version counter has not."""
        self._clash("silent", saved, need, write)

    def _changed(self, saved: Saved, writes: list[LiveWrite]) -> bool:
        """Whether torch would read another value now than the one that was saved."""
        before = saved.alias if saved.value is None else saved.value
        return not saved.lost and differ(before, self._now(saved, writes))

    def _now(self, saved: Saved, writes: list[LiveWrite]) -> torch.Tensor:
        """What torch would read. A leaf that was saved itself is read anew when it was given other ``.data``."""
        origin = saved.origin() if saved.origin is not None else None
        if origin is not None and any(write.swapped is not None for write in writes):
            return origin.detach()
        return saved.alias

    def _writes_since(self, saved: Saved) -> list[LiveWrite]:
        if saved.key is None:
            return []
        origin = saved.origin() if saved.origin is not None else None
        logged = self._writes.get(saved.key, ())
        if saved.more:
            logged = sorted((w for key in saved.keys for w in self._writes.get(key, ())), key=lambda w: w.clock)
        return [w for w in logged if w.clock > saved.clock and (w.swapped is None or w.swapped is origin)]

    def _clash(
        self,
        kind: evidence.Kind,
        saved: Saved,
        need: evidence.Backward,
        write: LiveWrite | None,
        node: Any = None,
    ) -> None:
        # One line that saves in a loop of a thousand steps is one conflict.
        # Two layers of batch norm may save and write at the same lines, each its own statistics.
        module = write.module if write is not None and kind == "silent" else None
        same = (kind, saved.stack, write.stack if write is not None else None, need.stack, module)
        if same in self._clashed:
            return
        self._clashed.add(same)
        clash = LiveConflict(kind)
        clash.saved, clash.need, clash.write, clash.freed = saved, need, write, saved.freed
        node = node or current_node()
        if node is not None:
            clash.node, clash.stale = node.name(), sequence_number(node)
        if self.traces and self._roots:
            self.trace.walk(need.index, self._roots, sys._getframe(1))
        clash.value = saved.alias
        if kind == "modified" and saved.value is not None:
            clash.effective = differ(saved.value, saved.alias)
        self.clashes.append(clash)

    # ---- what is written ----------------------------------------------------------------------------------------

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        begin = next_sequence_number()
        result = self._called(func, args, kwargs)
        end = next_sequence_number()
        if end != begin and self.traces:
            call, stack = self._call_stack
            self.trace.created(begin, end, stack if call == self._call else user_stack(sys._getframe(1)))
        return result

    def _called(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any] | None) -> Any:
        self._call += 1
        try:
            plain = func in self._plain
        except TypeError:  # an unhashable callable
            plain = False
        if plain and not self._shadowed and (not kwargs or "out" not in kwargs) and not _inference_mode():
            try:
                return self._carry_out(func, args, kwargs or {})
            except RuntimeError as error:
                return self._go_on(error, func, args, kwargs or {}, [])
        kwargs = kwargs or {}
        if func == _DATA_SET:
            return self._swap_data(func, args)
        written = self._written(func, args, kwargs)
        if self._shadowed and not _about_itself(func):
            args, kwargs = self._shadows.replace(args, kwargs)
        if not written or (not self._shadowed and self._nobody_cares(func, args, kwargs, written)):
            if written:
                self.counts["writes"] += 1
            try:
                result = self._carry_out(func, args, kwargs)
            except RuntimeError as error:
                return self._go_on(error, func, args, kwargs, written)
            if written and (bases := _with_history(written)):
                self._remember_latest(plain_name(func), _look_out(sys._getframe(1)), bases)
            if isinstance(result, torch.Tensor) and _inference_mode() and result.is_inference():
                key = storage_key(result) or 0
                if key not in self._made or self._made[key][0].expired():  # an address is used again
                    self._made[key] = StorageWeakRef(result.untyped_storage()), user_stack(sys._getframe(1))
            return result
        return self._write(func, args, kwargs, written)

    def _carry_out(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The person's own call."""
        return func(*args, **kwargs)

    def _written(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """What a call is about to write."""
        try:
            target = self._writers[func]
        except KeyError:
            target = self._writers[func] = writer(func)
            if target is None and self._is_plain(func):
                self._plain.add(func)
        except TypeError:
            target = None
        written = target(args, kwargs) if target is not None else None
        return [*(written or ()), *out_targets(args, kwargs)] if "out" in kwargs else written or []

    def _is_plain(self, func: Callable[..., Any]) -> bool:
        """Whether a function that does not write can be called without a closer look."""
        return bool(func != _DATA_SET)

    def _nobody_cares(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], written: list[Any]
    ) -> bool:
        """Whether nothing is saved where this writes, and torch has no reason to refuse it that must be seen before."""
        if func in _STATISTICS:
            return False
        for tensor in written:
            if tensor.layout is not torch.strided or tensor.is_inference() or 0 in tensor.stride():
                return False
            if storage_key(tensor) in self._saved:
                return False
        return not own_operands(args, kwargs, written)

    # ---- an optimizer's step: torch's own code, many small writes, all of them at one line of the user's -----------

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Takes the mode off while torch's own optimizer steps: what it is going to write is known beforehand."""
        self._end_step()
        if self.traces:
            self.trace.stepped(p for group in optimizer.param_groups for p in group["params"])
        if not torch_private.on_top(self) or self._shadowed:
            return
        if not by_itself(optimizer, args, kwargs):
            return
        written = []
        with unobserved():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.is_inference() or parameter.layout is not torch.strided or 0 in parameter.stride():
                        return
                    if parameter.grad is not None:
                        written.append(parameter)
            light = self.light
            wanted = [p for p in written if (self._waiting(p) if light and light.stays(p) else self._keep_value(p))]
        self.counts["writes"] += len(written)
        look = _look_out(sys._getframe(1)) if wanted else ((), "optim", None)
        self._step = (optimizer, wanted, look)
        pop_function_mode()

    def _after_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._end_step()

    def _end_step(self) -> None:
        """Puts the mode back and notes what the step has written."""
        if self._step is None:
            return
        (_, wanted, (stack, _, _)), self._step = self._step, None
        if wanted:
            self._note_at("step", (stack, "optim", None), wanted)
        push_function_mode(self)

    def _write(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], written: list[Any]) -> Any:
        self.counts["writes"] += 1
        undone = []
        if self.goes_on:
            for tensor in written:
                if _overlaps(tensor):  # some such writes pass, and backward stumbles over them later
                    return self._write_overlapping(func, args, kwargs, tensor)
            if not torch.is_inference_mode_enabled():  # into an inference tensor torch writes first and refuses then
                undone = [(t, t.clone()) for t in written if t.is_inference()]
        places = [self._shadows.of(t) for t in written] if self._shadows else written  # where it is really written
        self._own_operands = own_operands(args, kwargs, places)
        wanted = [tensor for tensor in places if self._matters(tensor) or storage_key(tensor) in self._own_operands]
        if plain_name(func) == "batch_norm":
            self._training_statistics = tuple(storage_key(t) for t in written)
        try:
            result = self._carry_out(func, args, kwargs)
        except RuntimeError as error:
            with torch.inference_mode():
                for tensor, value in undone:
                    tensor.copy_(value)
            return self._go_on(error, func, args, kwargs, written)
        finally:
            self._training_statistics, self._own_operands = (), frozenset()
        bases = _with_history(written)
        if wanted or bases:
            look = _look_out(sys._getframe(1))
            self._note_at(plain_name(func), look, wanted)
            self._remember_latest(plain_name(func), look, bases)
        return self._own(result, written)

    def _remember_latest(self, name: str, look: tuple[Stack, str, Any], bases: list[torch.Tensor]) -> None:
        """Who wrote last where there may be views: torch refuses some of them, when they are read."""
        stack, origin, module = look
        for base in bases:
            key = storage_key(base)
            if key is None:
                continue
            if len(self._latest) > _LATEST_KEPT:
                self._latest = {k: v for k, v in self._latest.items() if not v[0].expired()}
            write = LiveWrite(stack, self.tick(), name, origin, version_of(base))
            write.module = module
            self._latest[key] = StorageWeakRef(base.untyped_storage()), write

    def _own(self, result: Any, written: list[Any]) -> Any:
        """The user's tensor in place of its shadow, so that `w -= g` leaves the name with the tensor that had it."""
        return next((t for t in written if self._shadows and result is self._shadows.of(t)), result)

    def _matters(self, tensor: torch.Tensor) -> bool:
        """Whether somebody may ask later who wrote here."""
        return self._keep_value(tensor)

    def _waiting(self, tensor: torch.Tensor) -> list[Saved]:
        """What is saved in the tensor's storage and still wanted."""
        return self._alive(storage_key(tensor) or 0)

    def _alive(self, key: int) -> list[Saved]:
        waiting = self._saved.get(key)
        return waiting.all() if waiting is not None else []

    def log(self, key: int, write: LiveWrite) -> None:
        """Notes a write into a storage; of very many the first ones count."""
        log = self._writes.setdefault(key, [])
        if len(log) < _WRITES_KEPT:
            log.append(write)
        else:
            log[-1] = write

    def _keep_value(self, tensor: torch.Tensor) -> bool:
        """Clones what was saved in this storage and is still wanted, before it is overwritten; False if nothing is."""
        key = storage_key(tensor)
        waiting = self._saved.get(key) if key is not None else None
        if waiting is None:
            return False
        fresh, waiting.fresh = waiting.fresh, []
        for reference in fresh:
            saved = reference()
            if saved is not None:
                waiting.kept.append(reference)
                if saved.value is None and not saved.lost:
                    self.keep(saved)
        if waiting.alive():
            return True
        del self._saved[key]  # type: ignore[arg-type]
        self._writes.pop(key, None)  # type: ignore[arg-type]
        return False

    def keep(self, saved: Saved) -> bool:
        """Clones a value that is about to be overwritten, as far as the memory set aside for that goes."""
        if self.memory is not None:
            size = saved.alias.numel() * saved.alias.element_size()
            if self._kept + size > self.memory:
                saved.lost = True
                self.counts["unkept"] += 1
                return False
            self._kept += size
            weakref.finalize(saved, self._let_go, size).atexit = False
        with torch.no_grad():
            saved.value = saved.alias.clone()
        return True

    def _let_go(self, size: int) -> None:
        self._kept -= size

    def _note(self, func: Callable[..., Any], written: list[Any]) -> None:
        self._note_at(plain_name(func), _look_out(sys._getframe(2)), written)

    def _note_at(self, name: str, look: tuple[Stack, str, Any], written: list[Any]) -> None:
        self._clock += 1
        stack, origin, module = look
        for tensor in written:
            key = storage_key(tensor)
            if key is None:
                continue
            write = LiveWrite(stack, self._clock, name, origin, version_of(tensor))
            write.module = module
            self.log(key, write)

    def _swap_data(self, func: Callable[..., Any], args: Sequence[Any]) -> Any:
        """``p.data = new``: the storage stays as it is for those who saved a view, and goes for those who saved p."""
        target = args[0]
        key = storage_key(target)
        if len(args) > 1 and isinstance(args[1], torch.Tensor):
            there = storage_key(args[1])
            if self._shadows and there is not None and there == storage_key(self._shadows.of(target)) != key:
                return None  # `x.data *= 2` puts back what it got, and that is the shadow by now
            if there == key and args[1].shape == target.shape:
                return self._carry_out(func, args, {})
        self._clock += 1
        stack, origin, _ = _look_out(sys._getframe(2))
        result = self._carry_out(func, args, {})
        if key is not None:
            write = LiveWrite(stack, self._clock, "data", origin, version_of(target))
            write.swapped = target
            self._writes.setdefault(key, []).append(write)
        return result

    # ---- past what torch refuses --------------------------------------------------------------------------------

    def _go_on(
        self,
        error: RuntimeError,
        func: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        written: list[Any],
    ) -> Any:
        """Carries out a refused operation as the code means it, or lets the error go."""
        family = family_of(error)
        if family is None or family in ("modified", "second_backward"):
            raise error
        clash = self._refuse(family, func, str(error))
        if written and clash.write is not None:
            part = plain_name(func) == "__setitem__"  # torch makes a view of what is assigned to
            clash.write.leaf = written[0].is_leaf and written[0].requires_grad and not part
            base = base_of(written[0])
            clash.write.parameter = isinstance(written[0] if base is None else base, torch.nn.Parameter)
        if family in ("leaf", "view_of_leaf") and self.update_leaves:
            with torch.no_grad():
                result = func(*args, **kwargs)
            self._note(func, written)
            return result
        if family == "out_grad":
            return self._out_of_place(func, args, kwargs)
        if overlaps_input(str(error)):
            clash.value = written[0] if written else None
            result = func(*read_from_copies(written, args), **read_from_copies(written, kwargs))
            self._note(func, written)
            return result
        if is_of_base(str(error)):
            written = [t for t in arguments(args, kwargs) if t._is_view() and t.requires_grad]
            self._blame_base(clash, written)
        whom = written if family in RAISED_AT_WRITE else [t for t in arguments(args, kwargs) if t.is_inference()]
        if not whom:
            raise error
        clash.value = whom[0]
        if family == "inference":
            clash.made = self._made_at(whom)
        for tensor in whom:
            self._shadows.cast(tensor, whole=family != "overlap")
        return self._own(retry(func, self._shadows, args, kwargs), written)

    def _made_at(self, tensors: Sequence[torch.Tensor]) -> Stack | None:
        """Where one of these inference tensors came from."""
        return next((self._made[key][1] for t in tensors if (key := storage_key(t) or 0) in self._made), None)

    def _refuse(self, family: str, func: Callable[..., Any], message: str) -> LiveConflict:
        clash = LiveConflict("refused")
        clash.family, clash.message = family, message
        stack, origin, module = _look_out(sys._getframe(1))
        clash.write = LiveWrite(stack, self.tick(), plain_name(func), origin, _UNKNOWN_VERSION)
        clash.write.module = module
        if (family, stack) not in self._clashed:
            self._clashed.add((family, stack))
            self.clashes.append(clash)
        return clash

    def _blame_base(self, clash: LiveConflict, views: list[torch.Tensor]) -> None:
        """It is not the operation that wrote, but somebody before it."""
        for view in views:
            storage, write = self._latest.get(storage_key(view) or 0, (None, None))
            if storage is not None and write is not None and not storage.expired():
                clash.write, clash.value = write, base_of(view)
                return

    def _write_overlapping(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], tensor: torch.Tensor
    ) -> Any:
        clash = self._refuse("overlap", func, "")
        clash.known, clash.value = True, tensor
        self._shadows.cast(tensor, whole=False)
        return self._own(retry(func, self._shadows, args, kwargs), [tensor])

    def _out_of_place(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        rest = {k: v for k, v in kwargs.items() if k != "out"}
        result = func(*args, **rest)
        for tensor in out_targets(args, kwargs):
            self._shadows.cast(tensor, whole=False)
            shadow = self._shadows.of(tensor)
            if isinstance(result, torch.Tensor) and shadow.shape == result.shape:
                shadow.copy_(result)
        return result

    # ---- backward -----------------------------------------------------------------------------------------------

    def around_backward(
        self, event: evidence.Backward, roots: Sequence[torch.Tensor], call: Callable[[bool], Any]
    ) -> tuple[Any, bool]:
        """Runs one backward for the gradient trace: (its result, whether it had to be given up)."""
        outer, self._current, self._used = self._current, event, []
        begin = self.trace.moments[event.index] = next_sequence_number()
        if self.traces:
            self._roots = roots
            if event.index < CLOSELY:
                self.trace.walk(event.index, roots, sys._getframe(1))
        try:
            return call(self.keep_graphs), False
        except RuntimeError as error:
            family = family_of(error)
            if family not in ("modified", "second_backward"):
                raise
            clash = LiveConflict(family)  # type: ignore[arg-type]
            clash.need, clash.message, clash.known, clash.family = event, str(error), False, family
            self.clashes.append(clash)
            return None, True
        finally:
            if not event.retained:
                for saved in self._used:
                    saved.freed = saved.freed or event
            self._current, self._used, self._roots = (
                outer,
                [],
                (),
            )  # what was used would be held until the next backward
            if self.traces and (end := next_sequence_number()) != begin:  # a gradient with a graph of its own
                self.trace.created(begin, end, user_stack(sys._getframe(1)))


_STATISTICS = frozenset({torch.batch_norm, torch.nn.functional.batch_norm})
_inference_mode = torch.is_inference_mode_enabled


def replace(on: contextlib.ExitStack, owner: Any, name: str, new: Any) -> None:
    """Puts something of ours in the place of torch's for a time."""
    on.callback(setattr, owner, name, vars(owner)[name])
    setattr(owner, name, new)


def _with_history(written: list[Any]) -> list[torch.Tensor]:
    """Of what is written the tensors, or their bases, that have a grad_fn. A view itself may refuse to be asked."""
    bases = [t if (base := base_of(t)) is None else base for t in written]
    return [base for base in bases if base is not None and base.requires_grad and not base.is_leaf]


def _about_itself(func: Callable[..., Any]) -> bool:
    getter = getattr(func, "__self__", None)  # the getset descriptor of `Tensor.grad.__get__`
    return getattr(getter, "__name__", None) in _ABOUT_ITSELF or plain_name(func) in _OWN_METHODS


def _overlaps(tensor: torch.Tensor) -> bool:
    """Whether several elements share one place in memory, as expand() leaves them."""
    return 0 in tensor.stride() and any(step == 0 and size > 1 for size, step in zip(tensor.shape, tensor.stride()))


def _look_out(frame: types.FrameType | None) -> tuple[Stack, str, Any]:
    """The user's frames from here outwards, who wrote (user, nn, optim), and the torch module that did."""
    origin, module = "user", None
    inner = frame
    while inner is not None and kind_of(inner.f_code.co_filename) != "user":
        kind = kind_of(inner.f_code.co_filename)
        if kind == "optim":
            origin = "optim"
        elif kind == "nn" and origin == "user":
            origin = "nn"
        if kind == "nn" and module is None and inner.f_code.co_name == "forward":
            module = inner.f_locals.get("self")
        inner = inner.f_back
    return user_stack(inner), origin, module
