"""The recorder: who saved a tensor, who wrote into it, which backward needed it, with exact places.

NOTE [Recorder]. Two listeners work together. A saved-tensors hook sees each tensor that autograd keeps, and gives it
back when a backward asks. A function mode sees each call from Python that writes. Before a write, every saved tensor
in that storage that is still wanted is cloned, once: only what is both saved and written is ever copied. When a
backward then asks for a tensor that was written since, that is a conflict. The recorder notes it and hands out the
value as it was saved, so the replay continues, finds the next conflict, and its gradients are those that the code as
written would have had. Hooks switch torch's own version check off, hence the comparison is made here.

A function mode and not a dispatch mode: a dispatch mode loses the version bump of foreach operations, lets refused
writes pass, and costs three times as much. What it would see beyond (writes from C++ alone) bumps the version, so
such a conflict is still found, without its writing line.

Saved tensors of a graph that was made before the replay have no hooks. Their error is torch's own; it is noted as a
conflict whose places are not known, and the backward is given up so that the replay can continue.
"""

from __future__ import annotations

import contextlib
import inspect
import linecache
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.autograd.function import FunctionCtx
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode

from .. import torch_private
from ..families import family_of
from ..gradients.backward import CLOSELY, values_of
from ..session.names import history_of
from ..source.location import SourceRange, caller, line_of, user_stack
from ..source.sources import Sources
from ..storage import Key, storage_key
from ..torch_private import next_sequence_number, unobserved, version_of
from . import evidence
from .author import Author, author_at, held_at
from .caught import Caught, refusal
from .gradient_values import GradientValues
from .light_steps import LightSteps
from .noted_conflicts import NotedConflicts
from .observed import LiveConflict, LiveWrite, Saved, Stack, saved_by
from .operations import RESHAPES, Writers, own_operands, plain_name
from .optimizer_steps import OptimizerSteps
from .past_errors import PastErrors, indexed, overlaps, whole, with_history
from .saved_tensors import SavedTensors, changed, read_now
from .trace import Trace
from .tracked_copies import TrackedCopies, about_itself, asked_of_leaves
from .unfollowed import UnfollowedWrites
from .wrapped import applying, making_parameters, noting_line, part_of, replace, stepping_aside

_ELEMENTS_A_CALL = 1000  # saved in the time that one small operation takes, roughly
_DATA_SET = torch.Tensor.data.__set__  # type: ignore[attr-defined]
_SEVERAL = (tuple, list, type(iter(())))  # of which views that are made at once are handed out
_STATISTICS = frozenset({torch.batch_norm, torch.nn.functional.batch_norm})
_inference_mode = torch.is_inference_mode_enabled
_grad_mode = torch.is_grad_enabled


class Recorder(TorchFunctionMode):
    """Records one run of cells. Enter it around the run; read ``conflicts`` afterwards.

    ``update_leaves``: a refused write into a leaf is made as an update outside the graph (what an optimizer does)
    instead of being tracked. ``keep_graphs``: no graph is freed, and who would have freed it is noted. ``light``:
    the steps of optimizers leave some parameters as they are. ``memory`` is how many bytes of overwritten values are
    kept at a time; None is no limit. ``raised``: where the failure was raised that a person asks about.
    """

    continues = True  # past what torch refuses, as the code means it
    traces = True  # notes which call created which nodes

    def __init__(
        self,
        sources: Sources,
        *,
        update_leaves: bool = False,
        keep_graphs: bool = False,
        light: LightSteps | None = None,
        memory: int | None = None,
        raised: Sequence[SourceRange] = (),
    ) -> None:
        super().__init__()
        self.sources = sources
        self.keep_graphs = keep_graphs
        self.conflicts = NotedConflicts()
        self.saved = SavedTensors(memory)
        self.copies = TrackedCopies()
        self.trace = Trace()
        self.gradient_values = GradientValues()
        self.unfollowed = UnfollowedWrites()
        self.writers = Writers(self._is_plain)
        self.caught = Caught(sources, raised)
        self.past = PastErrors(
            self.conflicts, self.copies, self.note, self.tick, self.caught, update_leaves=update_leaves
        )
        self.steps = OptimizerSteps(self, self.saved, self.note, light)
        self.ours: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()  # around what is not the person's
        self.counts = {"saves": 0, "writes": 0}
        self.early: Callable[[int], bool] = lambda index: index < CLOSELY  # which passes are traced as they come
        # Whether a backward is of a cell before: what it gave, it gave.
        self.is_past: Callable[[evidence.Backward], bool] = lambda need: False
        self.at_next_save: Callable[[], None] | None = None  # called once, when the user's code goes on to a new graph
        self._copied = self.copies.table  # a dictionary is asked faster whether it is empty
        self._gradient_values = self.gradient_values.table
        self._clock = 0
        self._call = 0  # counts the calls that the mode sees
        self._elements = 0  # of what was saved
        self._call_stack: tuple[int, Stack] = (-1, ())
        self._carrying = frozenset({type(self)._carry_out.__code__, type(self).__torch_function__.__code__})
        self._roots: Sequence[torch.Tensor] = ()  # of the backward under way
        self._current: evidence.Backward | None = None
        self._past = False  # whether that is past
        self._used: list[Saved] = []
        self._freed: list[evidence.Backward] = []  # backwards that would have freed their graphs, which are kept
        self._notes_use = keep_graphs
        self._training_statistics: tuple[Key | None, ...] = ()
        self._held: dict[tuple[types.CodeType, int], tuple[str, ...]] = {}  # what each line that writes holds of it
        self._own_operands: frozenset[Key] = frozenset()  # storages that the call under way both reads and writes
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
        self._within = torch_private.around_backward(self._note_backward, self)
        self._backward_at: Stack = ()
        self._saving_at: Stack = ()
        self._on = contextlib.ExitStack()

    def __enter__(self) -> Recorder:
        with contextlib.ExitStack() as on:
            self._put_on(on)
            self._on = on.pop_all()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._on.close()

    def _put_on(self, on: contextlib.ExitStack) -> None:
        """Puts on all that listens; ``on`` learns how each is taken off, so that what fails half-way leaves nothing."""
        graph = torch.autograd.graph
        replace(on, FunctionCtx, "save_for_backward", self._saving(FunctionCtx.save_for_backward))
        replace(on, graph, "disable_saved_tensors_hooks", self._stepping_aside(graph.disable_saved_tensors_hooks))
        replace(on, torch.nn.Parameter, "__new__", self._making(torch.nn.Parameter.__new__))
        for name in ("real", "imag"):
            replace(on, torch.Tensor, name, part_of(getattr(torch.Tensor, name)))
        function = torch_private.applied_by()
        replace(on, function, "apply", applying(inspect.getattr_static(function, "apply"), self._apply))
        on.callback(register_optimizer_step_pre_hook(self._before_step).remove)
        on.callback(register_optimizer_step_post_hook(self._after_step).remove)
        on.enter_context(self._within)
        on.enter_context(self._hooks)
        on.callback(self._take_off_mode)
        super().__enter__()

    def _take_off_mode(self) -> None:
        self.steps.end()
        if torch_private.on_top(self):  # else an interrupt came while torch had us off for a moment
            super().__exit__(None, None, None)

    def _saving(self, plain: Callable[..., None]) -> Callable[..., None]:
        def note(stack: Stack) -> None:
            self._saving_at = stack

        return noting_line(plain, self.ours, note)

    def _stepping_aside(self, plain: Callable[[str], Any]) -> Callable[[str], Any]:
        return stepping_aside(plain, self.ours, self._hooks, self._pack, self.unfollowed.begin_or_end)

    def _making(self, plain: Callable[..., Any]) -> Any:
        return making_parameters(plain, self.past.parameter_refused if self.continues else None)

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
        return self.copies.of(tensor) if self._copied else tensor

    # ---- what is saved ------------------------------------------------------------------------------------------

    def _pack(self, tensor: torch.Tensor) -> Saved:
        return self._packed(tensor, caller())

    def _packed(self, tensor: torch.Tensor, frame: types.FrameType | None) -> Saved:
        self.counts["saves"] += 1
        self._elements += tensor.numel()
        if self.steps.under_way is not None:
            self.steps.end()  # it has raised, and somebody has caught that
        if self.at_next_save is not None:
            self._goes_on()
        if frame is None:
            stack = self._backward_at
        elif frame.f_code in self._carrying:  # all that one call saves is saved at one place
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
        self.saved.remember(saved)
        if self._training_statistics and saved.key in self._training_statistics:
            saved.lost = True  # backward checks their version, and does not read them
        else:
            self._look_at(saved, tensor)
        if self._own_operands and saved.key in self._own_operands and saved.value is None:
            self.saved.keep(saved)  # `y *= y` saves y and overwrites it: nothing comes between the two
        return saved

    def _goes_on(self) -> None:
        call, self.at_next_save = self.at_next_save, None
        if call is not None:
            with unobserved():
                call()

    def _look_at(self, saved: Saved, tensor: torch.Tensor) -> None:
        """For those who look closer."""

    def _unpack(self, saved: Saved) -> torch.Tensor:
        current = self._current
        if current is not None:
            past = self._past and saved.freed is None and saved.untouched()
            if not past and (saved.freed is not None or not self._unchanged(saved)):
                if self.continues:
                    self._refuse(saved, current)
                self.ask(saved, current)
            if self._notes_use and saved.freed is None:  # else torch lets it go, and nobody asks again
                self._used.append(saved)
            if past:
                return read_now(saved, self.saved.writes_since(saved))
        return self._answer(saved)

    def _unchanged(self, saved: Saved) -> bool:
        """Whether nothing speaks for it that the value is another one by now."""
        if saved.foreign:
            return False
        with unobserved():  # a backward runs under the mode, and this is asked of every tensor
            version = version_of(saved.alias)
        if version != saved.version or saved.detached is not None:
            return False
        return not (self.saved.writes and saved.key in self.saved.writes)

    def _answer(self, saved: Saved) -> torch.Tensor:
        return saved.alias if saved.value is None else saved.value

    def _refuse(self, saved: Saved, need: evidence.Backward) -> None:
        """Raises what torch would raise where the program goes on from that."""
        freed = saved.freed is not None and saved.freed is not need
        with unobserved():
            if (freed or not saved.untouched()) and self.caught.at(RuntimeError(), need.stack):
                raise refusal("second_backward" if freed else "modified", saved)

    def ask(self, saved: Saved, need: evidence.Backward) -> None:
        """A backward asks for ``saved``: is it still what it was?"""
        if saved.freed is not None and saved.freed is not need:
            self.conflict("second_backward", saved, need, None)
        writes = self.saved.writes_since(saved)
        if version_of(saved.alias) != saved.version:
            counted = [w for w in writes if w.counted] or writes
            first = next((w for w in counted if w.version > saved.version), counted[0] if counted else None)
            self.conflict("modified", saved, need, first)
        elif saved.detached is not None:
            self.conflict("modified", saved, need, saved.detached)
        elif writes and changed(saved, writes):
            self._silent(saved, need, writes[0])

    def _silent(self, saved: Saved, need: evidence.Backward, write: LiveWrite | None) -> None:
        """A value has changed, and the version counter has not."""
        self.conflict("silent", saved, need, write)

    def conflict(
        self,
        kind: evidence.Kind,
        saved: Saved,
        need: evidence.Backward,
        write: LiveWrite | None,
        node: Any = None,
    ) -> LiveConflict | None:
        """Notes that a backward needs what is no longer as it was saved; None if that is noted already."""
        found = self.conflicts.between(kind, saved, need, write, node)
        if found is not None and self.traces and self._roots:
            self.trace.walk(need.index, self._roots, sys._getframe(1))
        return found

    # ---- what is called -----------------------------------------------------------------------------------------

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        begin = next_sequence_number()
        result = self._called(func, args, kwargs)
        end = next_sequence_number()
        if not _grad_mode():
            with unobserved():
                self.past.made_without_graph(result, sys._getframe(1))
        if self._gradient_values:
            with unobserved():
                self.gradient_values.follow(func, args, kwargs or {}, result)
        if end != begin and self.traces:
            call, stack = self._call_stack
            stack = stack if call == self._call else user_stack(sys._getframe(1))
            self.trace.created(begin, end, stack)
            if type(result) in _SEVERAL:
                self.past.made_views(args, stack)
        return result

    def _called(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any] | None) -> Any:
        self._call += 1
        try:
            plain = func in self.writers.plain
        except TypeError:  # an unhashable callable
            plain = False
        if plain and not self._copied and (not kwargs or "out" not in kwargs) and not _inference_mode():
            try:
                return self._carry_out(func, args, kwargs or {})
            except RuntimeError as error:
                return self._past_error(error, func, args, kwargs or {}, [])
        kwargs = kwargs or {}
        if func == _DATA_SET:
            return self._swap_data(func, args)
        written = self.writers.written(func, args, kwargs)
        if self._copied and not about_itself(func):
            replaced, kwargs = self.copies.replace(args, kwargs)
            args = asked_of_leaves(func, args, replaced)
        if written:
            if self.unfollowed.on:
                self.unfollowed.note(plain_name(func), author_at(sys._getframe(1)), self.tick(), written)
            if plain_name(func) == "detach_":
                return self._detach(func, args, kwargs, written)
            if self._copied or not self._nobody_cares(func, args, kwargs, written):
                return self._write(func, args, kwargs, written)
            self.counts["writes"] += 1
        try:
            result = self._carry_out(func, args, kwargs)
        except RuntimeError as error:
            return self._past_error(error, func, args, kwargs, written)
        if written:
            with unobserved():
                if bases := with_history(written):
                    self._has_written(plain_name(func), self.author(sys._getframe(1), written), bases)
        if isinstance(result, torch.Tensor) and _inference_mode() and result.is_inference():
            self.past.made(result, sys._getframe(1))
        return result

    def _carry_out(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The person's own call."""
        return func(*args, **kwargs)

    def _apply(self, plain: Callable[..., Any], cls: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A custom Function is applied."""
        __tracebackhide__ = True
        new_args, new_kwargs = args, kwargs
        if self._copied:
            with unobserved():
                new_args, new_kwargs = self.copies.replace(args, kwargs)
        try:
            result = plain(*new_args, **new_kwargs)
        except RuntimeError as error:
            if family_of(error) != "inference":  # which it may not save
                raise
            with unobserved():
                return self._past_error(error, plain, new_args, new_kwargs, [])
        if not self._copied:
            return result
        with unobserved():
            return self.copies.own(result, [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad])

    def _past_error(
        self,
        error: RuntimeError,
        func: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        written: list[Any],
    ) -> Any:
        return self.past.carry_out(error, func, args, kwargs, written)

    def _is_plain(self, func: Callable[..., Any]) -> bool:
        """Whether a function that does not write can be called without a closer look."""
        return bool(func != _DATA_SET)

    def _nobody_cares(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], written: list[Any]
    ) -> bool:
        """Whether nothing is saved where this writes, and torch has no reason to refuse it that must be seen before."""
        if func in _STATISTICS:
            return False
        with unobserved():
            for tensor in written:
                if tensor.layout is not torch.strided or tensor.is_inference() or 0 in tensor.stride():
                    return False
                if self.saved.holds(tensor):
                    return False
            return not own_operands(args, kwargs, written)

    # ---- what is written ----------------------------------------------------------------------------------------

    def _write(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], written: list[Any]) -> Any:
        self.counts["writes"] += 1
        with unobserved():
            refused = next((one for one in written if self._overlapping(func, args, one)), None)
        if refused is not None:
            return self.past.write_overlapping(func, args, kwargs, refused)
        undone = []
        with unobserved():
            if self.continues and not _inference_mode():  # into an inference tensor torch writes first and refuses then
                undone = [(t, t.clone()) for t in written if t.is_inference()]
            places = [self.copies.of(t) for t in written] if self._copied else written  # where it is really written
            self._own_operands = own_operands(args, kwargs, places)
            wanted = [one for one in places if self._matters(one) or storage_key(one) in self._own_operands]
            if plain_name(func) == "batch_norm":
                self._training_statistics = tuple(storage_key(t) for t in written)
        try:
            result = self._carry_out(func, args, kwargs)
        except RuntimeError as error:
            with torch.inference_mode(), unobserved():
                for tensor, value in undone if not self.caught.here(error) else ():
                    tensor.copy_(value)
            return self._past_error(error, func, args, kwargs, written)
        finally:
            self._training_statistics, self._own_operands = (), frozenset()
        with unobserved():
            bases = with_history(written)
            if wanted or bases:
                author = self.author(sys._getframe(1), written)
                self.note(plain_name(func), author, wanted)
                self._has_written(plain_name(func), author, bases)
        return self.copies.own(result, written)

    def _has_written(self, name: str, author: Author, bases: list[torch.Tensor]) -> None:
        """A call has written into what requires grad."""
        self.past.wrote(name, author, bases)
        self._may_be_step(author, bases)

    def _may_be_step(self, author: Author, written: Iterable[torch.Tensor]) -> None:
        """What a line of the user's, which reads a gradient, writes into a leaf is a step by hand: ``p -= lr * p.grad``."""
        if self.traces and author.origin == "user" and author.stack:
            code, instruction = author.stack[0]
            leaves = [one for one in written if one.requires_grad and history_of(one) is None]
            line = linecache.getline(code.co_filename, line_of(code, instruction) or 0) if leaves else ""
            if ".grad" in line:
                self.trace.stepped(leaves, by_hand=True)

    def _overlapping(self, func: Callable[..., Any], args: Sequence[Any], tensor: torch.Tensor) -> bool:
        """Whether torch is about to refuse a write into elements that lie in one place, and the run is to go on past that."""
        if not self.continues or plain_name(func) in RESHAPES:
            return False
        if not overlaps(indexed(func, args, tensor)) or self.caught.here(RuntimeError()):
            return False
        # A leaf torch refuses first.
        return not (_grad_mode() and any(base.is_leaf for base in with_history([tensor])))

    def author(self, frame: types.FrameType, written: Sequence[torch.Tensor]) -> Author:
        """Who runs this frame, and where it holds what it writes, which is looked for once a line."""
        author = author_at(frame)
        if author.origin == "optim" or author.module is not None or not author.stack:
            return author
        line = author.stack[0]
        if line not in self._held:
            self._held[line] = held_at(written[0], frame)
        return author._replace(held=self._held[line])

    def _matters(self, tensor: torch.Tensor) -> bool:
        """Whether somebody may ask later who wrote here."""
        return self.saved.keep_all(tensor)

    def _swap_data(self, func: Callable[..., Any], args: Sequence[Any]) -> Any:
        """``p.data = new``: the storage stays as it is for those who saved a view, and goes for those who saved p."""
        target = args[0]
        key = storage_key(target)
        if len(args) > 1 and isinstance(args[1], torch.Tensor):
            there = storage_key(args[1])
            if self._copied and there is not None and there == storage_key(self.copies.of(target)) != key:
                return None  # `x.data *= 2` puts back what it got, and that is the copy by now
            if there == key and args[1].shape == target.shape:
                return self._carry_out(func, args, {})
        self._clock += 1
        author = author_at(sys._getframe(2))
        result = self._carry_out(func, args, {})
        if key is not None:
            for saved in saved_by(history_of(target)):  # of its own result a node keeps the memory, not the tensor
                saved.origin = None
            write = LiveWrite(author.stack, self._clock, "data", author.origin, version_of(target))
            write.swapped = target
            self.saved.log(key, write)
        self._may_be_step(author, [target])
        return result

    def _detach(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], written: list[Any]) -> Any:
        """``h.detach_()``: the value stays, and torch refuses a backward for which ``h`` itself was saved."""
        self.counts["writes"] += 1
        tensor = self.copies.of(written[0]) if self._copied else written[0]
        history = history_of(tensor)
        own = {id(saved) for saved in saved_by(history)}  # of its own result a node keeps the memory, not the tensor
        try:
            result = self._carry_out(func, args, kwargs)
        except RuntimeError as error:
            return self._past_error(error, func, args, kwargs, written)
        self._clock += 1
        author = self.author(sys._getframe(2), written)
        for saved in self.saved.waiting(tensor) if history is not None else ():
            if id(saved) not in own and saved.origin is not None and saved.origin() is tensor:
                write = saved.detached = LiveWrite(author.stack, self._clock, "detach_", author.origin, saved.version)
                write.held = author.held
        return result

    def note(self, name: str, author: Author, written: Sequence[torch.Tensor]) -> None:
        """Logs a write into these tensors."""
        self._clock += 1
        for tensor in written:
            key = storage_key(tensor)
            if key is None:
                continue
            write = LiveWrite(author.stack, self._clock, name, author.origin, version_of(tensor))
            write.module, write.held = author.module, author.held
            write.by_list = author.by_list or name.startswith(("_foreach_", "_fused_"))
            base = whole(tensor)
            write.of_leaf = base.is_leaf and base.requires_grad
            self.log(key, write)

    def log(self, key: Key, write: LiveWrite) -> None:
        """Notes a write into a storage."""
        self.saved.log(key, write)

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self.steps.end()
        if self.traces:
            self.trace.stepped(p for group in optimizer.param_groups for p in group["params"])
            self.past.steps(optimizer, sys._getframe(1))
        if not self._copied:
            self.counts["writes"] += self.steps.begin(optimizer, args, kwargs)

    def _after_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self.steps.end()

    # ---- backward -----------------------------------------------------------------------------------------------

    def around_backward(
        self,
        event: evidence.Backward,
        roots: Sequence[torch.Tensor],
        leaves: Sequence[torch.Tensor],
        call: Callable[[bool], Any],
        wanted: Sequence[torch.Tensor] = (),
    ) -> tuple[Any, bool]:
        """Runs one backward for the gradient trace: (its result, whether it had to be given up).

        ``leaves``: those that it reaches, where its graph is looked at. ``wanted``: the tensors whose
        gradients ``autograd.grad`` is asked for; who looks for silent gradients reads them.
        """
        outer, self._current, self._used = (self._current, self._past), event, []
        self._past = self.is_past(event)
        begin = next_sequence_number()
        self.trace.begins(event.index, begin)
        gradients: list[tuple[torch.Tensor, int]] = []
        if self.traces:
            self._roots = roots
            if self._gradient_values and self.gradient_values.holds(roots):
                self.gradient_values.passes.add(event.index)
            if self.early(event.index):
                self.trace.walk(event.index, roots, sys._getframe(1))
                gradients = self._saved_gradients(leaves)
        try:
            result = call(self.keep_graphs)
            added = [gradient for gradient, version in gradients if version_of(gradient) != version]
            if added:
                self.note("backward", Author(user_stack(sys._getframe(1)), "user", None), added)
            self._went_through_unhooked(event)
            if event.asked and self.traces:
                with unobserved():
                    given = [one for one in values_of(result) if one is not None]
                    self.gradient_values.add([one for one in given if not one.requires_grad])
            return result, False
        except RuntimeError as error:
            family = family_of(error)
            if family not in ("modified", "second_backward") or self.caught.at(error, event.stack):
                raise
            write = self.unfollowed.named_by(str(error)) if family == "modified" else None
            self.conflicts.without_places(family, event, str(error), write)  # type: ignore[arg-type]
            return None, True
        finally:
            if not event.retained:
                for saved in self._used:
                    saved.freed = saved.freed or event
            # What was used would be held until the next backward.
            (self._current, self._past), self._used, self._roots = outer, [], ()
            if self.traces and (end := next_sequence_number()) != begin:  # a gradient with a graph of its own
                self.trace.created(begin, end, user_stack(sys._getframe(1)))

    def _saved_gradients(self, leaves: Sequence[torch.Tensor]) -> list[tuple[torch.Tensor, int]]:
        """The gradients that a backward may add to in place, with their versions, where something saved lies in them."""
        with unobserved():
            found = [leaf.grad for leaf in leaves if leaf.grad is not None]
            return [(gradient, version_of(gradient)) for gradient in found if self.saved.keep_all(gradient)]

    def _went_through_unhooked(self, event: evidence.Backward) -> None:
        """Notes the nodes that were gone through a second time, and save nothing that could be asked for."""
        if not self.keep_graphs or not self.traces or event.limited:  # which goes through less than is walked
            return
        for freed in self._freed:
            node = self.trace.unhooked_again(event.index, freed.index)
            if node is not None:
                self.conflicts.gone_through_again(event, freed, node, self.trace.stack_of(node))
        if not event.retained:
            self._freed.append(event)
