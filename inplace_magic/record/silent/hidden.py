"""Writes that torch itself does not see, and that make a gradient wrong without an error.

What the version counter misses: ``.data`` and other detached aliases, fused optimizer steps, running statistics of
batch norm (these the recorder sees as calls), and further

- memory that numpy or another library shares: no call shows the write. What is saved there is cloned at once, and
  compared after every line of the user's that runs, until a line has changed it;
- tensors that a custom Function keeps on ``ctx`` without ``save_for_backward``, or overwrites without ``mark_dirty``;
- writes through ``detach()`` or ``.data`` into a tensor that is in a graph, before anything saved it: the values
  change, the graph never hears of it;
- writes into a gradient that backward has handed to a hook or to a custom Function, and to others.

NOTE [Is the gradient wrong]. That a saved value has changed does not make a gradient wrong: relu reads only the sign
of what it saved, pooling only the shape, a convolution of data saves a weight that it will not read. So a node that
holds a changed value runs twice within the backward, once with the value as saved and once as it is now. Only if that
makes a difference, it is a finding. A write behind the graph's back counts only if a gradient arrives where it wrote.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd.function import FunctionCtx

from ...gradients.backward import graph_of
from ...source.location import kind_of, user_stack
from ...torch_private import current_node, raw_names, unobserved, version_of
from .. import evidence
from ..current_line import LineWatch, telling
from ..observed import LiveWrite, Saved, Stack, differ
from ..operations import arguments, plain_name
from ..recorder import Recorder
from ..tracked_copies import storage_key
from .handed_gradients import handed

_EXPORTS = frozenset({"numpy", "__array__", "__dlpack__", "untyped_storage", "storage"})
_DATA_GET = torch.Tensor.data.__get__  # type: ignore[attr-defined]
_DATA_SET = torch.Tensor.data.__set__  # type: ignore[attr-defined]
_FOREIGN_LIMIT = 256 * 2**20  # bytes of foreign memory that are kept to be compared
_CLOSE = 1e-5  # two runs of one node may add up in another order
# Writes past the graph that leave the gradient what it is (a sum), or are made for that: noise, straight-through rounding.
_MEANT = frozenset({
    "add_", "sub_", "__iadd__", "__isub__", "copy_", "round_", "floor_", "ceil_", "trunc_", "sign_", "sgn_", "frac_",
    "normal_", "uniform_", "bernoulli_", "random_", "set_", "resize_",
})  # fmt: skip
_MADE, _READ = "inplace_magic written", "inplace_magic read"  # in a node's metadata, which lives as long as the node


@dataclass(eq=False)
class Unheard:
    """A write through a detached alias of ``base``, which a graph goes on from: which elements it changed."""

    write: LiveWrite
    base: weakref.ref[torch.Tensor]
    alias: torch.Tensor
    changed: torch.Tensor
    output: int  # which of its node's outputs the base is


@dataclass
class Inside:
    """What happened within a custom Function's forward."""

    writes: list[tuple[int, LiveWrite]] = field(default_factory=list)
    dirty: set[int] = field(default_factory=set)


@dataclass
class Given:
    """What a custom Function was given; its value too, where the reference has to be made from it."""

    tensor: torch.Tensor
    version: int
    value: torch.Tensor | None


Suspicion = tuple[Saved, evidence.Backward, LiveWrite | None]


class HiddenRecorder(Recorder):
    """The recorder that looks closer. ``track``: a write through a detached alias is made part of the graph, which is
    what the reference needs; else it is only noted."""

    def __init__(self, sources: Any, *, track: bool = True, **options: Any) -> None:
        super().__init__(sources, **options)
        self.track = track
        self._foreign: list[tuple[weakref.ref[Saved], int]] = []
        self._foreign_bytes = 0
        self._lines = LineWatch(self._after_line)
        self._aliased: dict[int, weakref.ref[torch.Tensor]] = {}  # storages of graph tensors with a detached alias
        self._unheard: dict[int, Unheard] = {}  # by storage, as long as its tensor can be read
        self._past_graphs = False  # there has been such a write
        self._inside: list[Inside] = []
        self._suspects: dict[Any, list[Suspicion]] = {}  # by node, as long as a backward runs
        self._lent: dict[tuple[Any, int | None], Any] = {}  # by node and storage, as long as a backward runs
        self.handed = False  # a gradient that was handed over has been written; `track` tells whether that matters
        self._turned = False  # a node runs for the second time, and gets the other values
        self._plain_apply = torch.autograd.Function.__dict__["apply"]
        self._plain_mark = FunctionCtx.mark_dirty

    def __enter__(self) -> HiddenRecorder:
        def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            return self._apply(self._plain_apply.__func__, cls, args, kwargs)

        def mark_dirty(ctx: Any, *tensors: Any) -> None:
            if self._inside:
                self._inside[-1].dirty.update(id(tensor) for tensor in tensors)
            self._plain_mark(ctx, *tensors)

        torch.autograd.Function.apply = classmethod(apply)  # type: ignore[assignment,method-assign]
        FunctionCtx.mark_dirty = mark_dirty  # type: ignore[assignment,method-assign]
        super().__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)
        torch.autograd.Function.apply = self._plain_apply  # type: ignore[method-assign]
        FunctionCtx.mark_dirty = self._plain_mark  # type: ignore[method-assign]
        self._lines.stop()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        __tracebackhide__ = True
        if self._current is not None:  # of what runs in a backward, nothing else is looked at
            given = handed(sys._getframe(1), self._written(func, args, kwargs or {}))
            if given is not None:
                self._lend(func, *given, self._current)
            return func(*args, **(kwargs or {}))
        try:
            plain = func in self._plain
        except TypeError:
            plain = False
        if plain and not self._unheard:
            return super().__torch_function__(func, types, args, kwargs)
        name = plain_name(func)
        if name in _EXPORTS:
            if args and (name[:1] == "_" or _called_by_user(sys._getframe(1))):
                for saved in self._waiting(args[0]):
                    self._compare_later(saved)
        elif (name == "detach" or func == _DATA_GET) and args and args[0].requires_grad and not args[0].is_leaf:
            key = storage_key(self._shadows.of(args[0]))
            if key is not None and self._base_at(key) is None:
                self._aliased[key] = weakref.ref(args[0])
        result = super().__torch_function__(func, types, args, kwargs)
        if self._unheard:
            self._mark_read(arguments(args, kwargs or {}), result)
        return result

    def _is_plain(self, func: Callable[..., Any]) -> bool:
        return super()._is_plain(func) and not shares(func)

    def _nobody_cares(self, func: Callable[..., Any], written: list[Any]) -> bool:
        return not self._inside and not self._aliased and super()._nobody_cares(func, written)

    # ---- is the gradient wrong --------------------------------------------------------------------------------------

    def around_backward(
        self, event: evidence.Backward, roots: Sequence[torch.Tensor], call: Callable[[bool], Any]
    ) -> tuple[Any, bool]:
        watched = self._watch_nodes(event, roots)
        try:
            return super().around_backward(event, roots, call)
        finally:
            self._unwatch(watched)

    def _unwatch(self, watched: list[Any]) -> None:
        self._suspects.clear()
        for handle in (*watched, *self._lent.values()):
            handle.remove()
        self._lent.clear()

    def _watch_nodes(self, event: evidence.Backward, roots: Sequence[torch.Tensor]) -> list[Any]:
        """See NOTE [Is the gradient wrong]."""
        changed = self._changed_values()
        if not changed and not self._past_graphs:
            return []
        handles = []
        nodes = graph_of(roots)[2]
        for node in nodes:
            if isinstance(node, torch.autograd.function.BackwardCFunction):
                continue  # the user's own code is not run twice
            if any(id(saved) in changed for saved in _saved_by(node)):
                self._suspects[node] = []
                handles.append(node.register_hook(self._second_run(node)))
        read = {unheard for node in nodes for unheard in node.metadata.get(_READ, ())} if self._past_graphs else set()
        for node in nodes if read else ():
            for unheard in node.metadata.get(_MADE, ()):
                if unheard in read:
                    handles.append(node.register_prehook(self._arriving(unheard, event)))
        return handles

    def _changed_values(self) -> set[int]:
        found = set()
        for key in self._writes:
            for saved in self._alive(key):
                writes = self._writes_since(saved)
                if writes and version_of(saved.alias) == saved.version and self._changed(saved, writes):
                    found.add(id(saved))
        for reference, _ in self._foreign:
            foreign = reference()
            if foreign is not None and differ(foreign.value, foreign.alias):
                found.add(id(foreign))
        return found

    def _silent(self, saved: Saved, need: evidence.Backward, write: LiveWrite | None) -> None:
        node = current_node()
        if node in self._suspects:
            self._suspects[node].append((saved, need, write))
        else:
            self._clash("silent", saved, need, write)

    def _second_run(self, node: Any) -> Callable[[Any, Any], None]:
        def compare(result: Sequence[torch.Tensor | None], arrived: Sequence[torch.Tensor | None]) -> None:
            suspicions = self._suspects.get(node)
            if not suspicions:
                return
            self._turned = True
            try:
                with torch.no_grad():
                    other = node(*arrived)
            except Exception:
                other = None
            finally:
                self._turned = False
            others = other if isinstance(other, tuple) else (other,)
            if other is None or not _alike(result, others):
                for suspicion in suspicions:
                    self._clash("silent", *suspicion, node=node)
            suspicions.clear()

        return compare

    def _unpack(self, saved: Saved) -> torch.Tensor:
        return self._other_answer(saved) if self._turned else super()._unpack(saved)

    def _other_answer(self, saved: Saved) -> torch.Tensor:
        return self._now(saved, self._writes_since(saved))

    def ask(self, saved: Saved, need: evidence.Backward) -> None:
        super().ask(saved, need)
        if saved.foreign and version_of(saved.alias) == saved.version and not self._writes_since(saved):
            self._look_now(saved)
            writes = self._writes_since(saved)
            if writes:
                self._silent(saved, need, writes[0])

    # ---- writes into gradients that were handed over ------------------------------------------------------------

    def _lend(self, func: Callable[..., Any], gradient: torch.Tensor, own: bool, need: evidence.Backward) -> None:
        """Lets a write reach the node that it is made for alone: everybody else gets the gradient from before.

        A hook writes before its node runs, a Function's backward (``own``) while it does.
        """
        self.handed = True
        node, key = current_node(), storage_key(gradient)
        if not self.track or node is None or (node, key) in self._lent or gradient.layout != torch.strided:
            return
        alias, value = gradient.detach(), gradient.detach().clone()
        write = LiveWrite(user_stack(sys._getframe(2)), self.tick(), plain_name(func), "user", version_of(gradient))
        write.handed = True

        def settle(gradients: Sequence[torch.Tensor | None], *rest: Any) -> tuple[torch.Tensor | None, ...]:
            with unobserved(), torch.no_grad():
                settled = tuple(g.clone() if g is not None and storage_key(g) == key else g for g in gradients)
                changed = differ(value, alias)
                alias.copy_(value)
            if changed:
                self._clash("silent", Saved(alias, (), self.tick()), need, write)
            return settled

        self._lent[node, key] = node.register_hook(settle) if own else node.register_prehook(settle)

    # ---- writes through detached aliases ------------------------------------------------------------------------

    def _write(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], written: list[Any]) -> Any:
        __tracebackhide__ = True
        hit = [] if not self._aliased or plain_name(func) in _MEANT else self._unheard_by(written)
        if not hit:
            return super()._write(func, args, kwargs, written)
        bases = [base for _, base in hit]
        before = [self._shadows.of(base).detach().clone() for base in bases]
        if self.track and not any(self._waiting(base) or self._waiting(self._shadows.of(base)) for base in bases):
            for base in bases:
                self._shadows.cast(base, whole=True)
            heard = {id(alias): self._shadows.stretch(base, alias) for alias, base in hit}
            new_args, new_kwargs = self._shadows.replace(args, kwargs)
            new_args = [heard.get(id(old), new) for old, new in zip(args, new_args)]
            result = func(*new_args, **{k: heard.get(id(kwargs[k]), new) for k, new in new_kwargs.items()})
        else:
            result = super()._write(func, args, kwargs, written)
        stack = user_stack(sys._getframe(1))
        for base, value in zip(bases, before):
            now = self._shadows.of(base)
            node = now.grad_fn
            if node is None or value.shape != now.shape:
                continue
            changed = (value != now.detach()) & ~(value.isnan() & now.detach().isnan())
            write = LiveWrite(stack, self.tick(), plain_name(func), "user", version_of(base))
            unheard = Unheard(write, weakref.ref(base), base.detach(), changed, now.output_nr)
            self._past_graphs = True
            self._unheard = {key: one for key, one in self._unheard.items() if one.base() is not None}
            self._unheard[storage_key(base) or 0] = unheard
            _note_on(node, _MADE, unheard)
        return result

    def _unheard_by(self, written: list[Any]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The detached aliases that are written, each with the tensor of a graph that the write goes past."""
        return [(t, base) for t in written if not t.requires_grad and (base := self._aliased_by(t)) is not None]

    def _aliased_by(self, tensor: torch.Tensor) -> torch.Tensor | None:
        return self._base_at(storage_key(tensor) or 0)

    def _base_at(self, key: int) -> torch.Tensor | None:
        """The tensor whose memory, or whose shadow's, this is. An address may belong to another by now."""
        reference = self._aliased.get(key)
        base = reference() if reference is not None else None
        return base if base is not None and key in (storage_key(base), storage_key(self._shadows.of(base))) else None

    def _mark_read(self, tensors: list[torch.Tensor], result: Any) -> None:
        """Notes in the graph that this result was made from values that the graph has not heard of."""
        for tensor in tensors:
            if not tensor.requires_grad:
                continue
            key = storage_key(tensor) or 0
            unheard = self._unheard.get(key)
            if unheard is None:
                continue
            base = unheard.base()
            if base is None or storage_key(base) != key:
                del self._unheard[key]
                continue
            for output in result if isinstance(result, (tuple, list)) else (result,):
                node = output.grad_fn if isinstance(output, torch.Tensor) else None
                if node is not None:
                    _note_on(node, _READ, unheard)

    def _arriving(self, unheard: Unheard, event: evidence.Backward) -> Callable[[Any], None]:
        def look(gradients: Sequence[torch.Tensor | None]) -> None:
            gradient = gradients[unheard.output]
            if gradient is None or gradient.shape != unheard.changed.shape:
                return
            with torch.no_grad():
                wrong = bool((gradient[unheard.changed] != 0).any()) if gradient.layout == torch.strided else False
            if wrong:
                self._clash("silent", Saved(unheard.alias, (), self.tick()), event, unheard.write)

        return look

    # ---- foreign memory -----------------------------------------------------------------------------------------

    def _look_at(self, saved: Saved, tensor: torch.Tensor) -> None:
        if tensor.device.type == "cpu" and not _resizable(tensor):
            self._compare_later(saved)

    def _compare_later(self, saved: Saved) -> None:
        size = saved.alias.numel() * saved.alias.element_size()
        if saved.foreign or saved.lost or self._foreign_bytes + size > _FOREIGN_LIMIT:
            return
        if saved.value is None and not self.keep(saved):
            return
        saved.foreign = True
        self._foreign_bytes += size
        self._foreign.append((weakref.ref(saved), size))
        self._lines.start()

    def _after_line(self) -> None:
        """A line of the user's has run: has it changed what is saved in foreign memory?"""
        gone = False
        for reference, size in self._foreign:
            saved = reference()
            if saved is None:
                gone = True
                self._foreign_bytes -= size
            elif not self._writes_since(saved):
                self._look_now(saved)
        if gone:
            self._foreign = [(reference, size) for reference, size in self._foreign if reference() is not None]

    def _look_now(self, saved: Saved) -> None:
        if differ(saved.value, saved.alias):
            self.log(saved.key or 0, LiveWrite(self._line(), self.tick(), "", "user", saved.version))

    def _line(self) -> Stack:
        """The line that has just run, as far as that is known."""
        return telling(self._lines.last)

    # ---- custom Functions ---------------------------------------------------------------------------------------

    def _matters(self, tensor: torch.Tensor) -> bool:
        return super()._matters(tensor) or bool(self._inside)

    def log(self, key: int, write: LiveWrite) -> None:
        super().log(key, write)
        if self._inside:
            self._inside[-1].writes.append((key, write))

    def _apply(self, plain: Callable[..., Any], cls: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        given = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
        inputs = [Given(a, version_of(a), a.detach().clone() if self.track else None) for a in given]
        self._inside.append(Inside())
        try:
            result = plain(cls, *args, **kwargs)
        finally:
            inside = self._inside.pop()
        node = _node_of(result, cls)
        if node is not None:
            self._watch_node(node, cls, inputs, inside, user_stack(sys._getframe(2)))
        return result

    def _watch_node(self, node: Any, cls: Any, inputs: list[Given], inside: Inside, stack: Stack) -> None:
        kept = {name: value for name, value in vars(node).items() if isinstance(value, torch.Tensor) and value.numel()}
        used = _names_used(cls.backward) if kept else set()
        wanted = {name: Saved(tensor, stack, self.tick()) for name, tensor in kept.items() if name in used}
        for saved in wanted.values():
            saved.foreign = True
            if saved.key is not None:
                self._remember(saved, saved.key)
        overwritten = [
            (one, write)
            for one in inputs
            if version_of(one.tensor) != one.version and id(one.tensor) not in inside.dirty
            for key, write in inside.writes[:1]
            if key == storage_key(one.tensor)
        ]
        if not wanted and not overwritten:
            return

        def before_backward(grads: Any) -> None:
            if self._current is None:
                return
            for name, saved in wanted.items():
                writes = self._writes_since(saved)
                if writes and self._changed(saved, writes):
                    self._clash("silent", saved, self._current, writes[0])
                    if self.track:
                        setattr(node, name, saved.value)
            for one, write in overwritten:
                saves = [s for s in self._waiting(one.tensor) if s.clock > write.clock]
                for saved in saves[:1]:
                    self._clash("silent", saved, self._current, write)
                    if self.track and one.value is not None and saved.alias.shape == one.value.shape:
                        saved.value = one.value

        node.register_prehook(before_backward)


def shares(func: Any) -> bool:
    """Whether a call of ``func`` gives other access to a tensor's memory, or other memory to a tensor."""
    return plain_name(func) in _EXPORTS or plain_name(func) == "detach" or func in (_DATA_GET, _DATA_SET)


_HANDLER = torch.overrides.handle_torch_function.__code__


def _called_by_user(frame: types.FrameType | None) -> bool:
    while frame is not None and (frame.f_code is _HANDLER or frame.f_code.co_name == "__torch_function__"):
        frame = frame.f_back
    return frame is not None and kind_of(frame.f_code.co_filename) == "user"


def _saved_by(node: Any) -> list[Saved]:
    """What this node has saved through our hooks."""
    found: list[Saved] = []
    for name in raw_names(type(node)):
        try:
            raw = getattr(node, name)
            values = [one.data for one in (raw if isinstance(raw, (tuple, list)) else (raw,))]
        except (RuntimeError, AttributeError):  # freed
            continue
        found += [value for value in values if isinstance(value, Saved)]
    return found


def _note_on(node: Any, key: str, unheard: Unheard) -> None:
    node.metadata.setdefault(key, []).append(unheard)


def _alike(ones: Sequence[torch.Tensor | None], others: Sequence[torch.Tensor | None]) -> bool:
    """Whether two runs of one node gave the same gradients."""
    if len(ones) != len(others):
        return False
    for one, other in zip(ones, others):
        if one is None or other is None or not differ(one.detach(), other.detach()):
            continue
        with torch.no_grad():
            scale = float(torch.maximum(one.abs(), other.abs()).nan_to_num(0.0, 0.0, 0.0).max())
            if not torch.allclose(one, other, rtol=0.0, atol=_CLOSE * scale, equal_nan=True):
                return False
    return True


def _names_used(function: Any) -> set[str]:
    """The attribute names in a function's code, that of functions inside it and of what it wraps included."""
    todo: list[Any] = [function]
    seen: set[int] = set()
    found: set[str] = set()
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        code = one if isinstance(one, types.CodeType) else getattr(one, "__code__", None)
        if code is not None:
            found.update(code.co_names)
            todo += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
        if hasattr(one, "__wrapped__"):
            todo.append(one.__wrapped__)
        todo += [c.cell_contents for c in getattr(one, "__closure__", None) or () if isinstance(c.cell_contents, types.FunctionType)]  # fmt: skip
    return found


def _resizable(tensor: torch.Tensor) -> bool:
    """False for memory that another library owns or has been shown: such a storage cannot be resized any more."""
    try:
        return bool(tensor.untyped_storage().resizable())
    except (RuntimeError, NotImplementedError, ValueError):
        return True


def _node_of(result: Any, cls: Any) -> Any:
    outputs = result if isinstance(result, tuple) else (result,)
    for output in outputs:
        node = getattr(output, "grad_fn", None) if isinstance(output, torch.Tensor) else None
        if node is not None and type(node) is getattr(cls, "_backward_cls", None):
            return node
    return None
