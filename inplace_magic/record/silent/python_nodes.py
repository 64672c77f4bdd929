"""What the backward of a custom Function reads, wherever it is kept.

``save_for_backward`` is one place of many. A backward also reads attributes of ``ctx``, what these hold (lists,
dictionaries, objects, arrays), the closures and globals of its own code, and what its forward has read, which it may
run again (reversible blocks). Autograd checks none of them. All of these tensors and arrays are taken for saved; what
it overwrites among its inputs without ``mark_dirty`` counts for those who have saved that memory.

Proof: where such a value has changed, what the backward computes from it is followed from call to call. If what it
gives back comes from a changed value, the gradient is wrong. (The user's own code is not run twice, but where a forward saves
what it has overwritten: derivative.py.) In a reference run the old values stand in that memory while the backward runs.
"""

from __future__ import annotations

import os
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ...source.own import is_own
from ...storage import storage_key
from ...torch_private import current_node, unobserved, version_of
from ..observed import LiveWrite, Saved, Stack, saved_by, write_into
from ..operations import arguments, tensors_in
from .derivative import Derivative, Given
from .events import Applied, Call, Detector, Run
from .rebound import attributes, binding, rebound
from .regions import Region, overwritten

_TORCH = os.path.join(os.path.dirname(torch.__file__), "")
_DEPTH, _WIDTH = 3, 50  # how far into what ctx holds, and how many items of one container
_ESCAPES = frozenset({
    "item", "tolist", "numpy", "__array__", "__bool__", "__float__", "__int__", "__index__", "equal", "allclose",
})  # fmt: skip


@dataclass
class _Input:
    """A tensor that a Function was given; its value too, where the reference has to be made from it."""

    tensor: torch.Tensor
    version: int
    value: torch.Tensor | None


@dataclass
class _Inside:
    """What happened within a Function's forward."""

    inputs: list[_Input]
    region: Region | None
    given: Given | None  # all of its arguments, for a reference run
    writes: list[tuple[int, LiveWrite]] = field(default_factory=list)


@dataclass
class _Trail:
    """What was computed from changed values in the backward of ``node``, by storage. ``kept`` keeps addresses apart."""

    node: Any
    storages: set[int]
    kept: list[torch.Tensor] = field(default_factory=list)
    escaped: bool = False  # into a number or an array, where it cannot be followed


class PythonNodes(Detector):
    """Looks into the nodes of custom Functions."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._inside: list[_Inside] = []
        self._trail: _Trail | None = None
        self.busy = False  # a Function's forward is under way

    def applies(self, cls: Any, args: Sequence[Any], inputs: Sequence[torch.Tensor]) -> None:
        theirs = bool(inputs) and not _is_torchs(cls)
        given = Given.to(args) if theirs and self.run.policy.reference else None
        values = {id(arg): value for arg, value in zip(args, given.args)} if given is not None else {}
        region = Region(self.run, self.run.here()) if theirs else None
        kept = [_Input(one, version_of(one), values.get(id(one))) for one in inputs]
        self._inside.append(_Inside(kept, region, given))
        self.busy = True
        if region is not None:
            self.run.curious.add(self)

    def calls(self, call: Call) -> None:
        for inside in self._inside:
            if inside.region is not None:
                inside.region.calls(call)

    def called(self, call: Call, result: Any) -> None:
        for inside in self._inside:
            if inside.region is not None:
                inside.region.called(result)

    def logs(self, key: int, write: LiveWrite) -> None:
        if self._inside:
            self._inside[-1].writes.append((key, write))

    def applied(self, applied: Applied) -> None:
        inside = self._inside.pop()
        self.busy = bool(self._inside)
        self._calm()
        if inside.region is None:
            return
        inside.region.close()
        if applied.node is None:
            return
        kept = [self._keep(tensor, applied.stack) for tensor in _reads(applied.cls, applied.node)]
        known = {saved.key for saved in (*kept, *saved_by(applied.node))}
        kept += [saved for key, saved in inside.region.reads.items() if key not in known]
        overwritten = [
            _Overwritten(one, write)
            for one in inside.inputs
            if version_of(one.tensor) != one.version and id(one.tensor) not in applied.dirty
            for write in [write for key, write in inside.writes if key == storage_key(one.tensor)][:1]
        ]
        if overwritten:
            self._meets_overwritten(applied, inside, overwritten)
        if kept:
            before = _Kept(self, kept, applied)
            applied.node.register_prehook(self.run.hook(before.enter))
            applied.node.register_hook(self.run.hook(before.leave))

    def _calm(self) -> None:
        if self._trail is None and all(inside.region is None for inside in self._inside):
            self.run.curious.discard(self)

    def _keep(self, tensor: torch.Tensor, stack: Stack) -> Saved:
        saved = Saved(tensor, stack, self.run.tick())
        self.run.remember(saved)
        if not _torchs(tensor):
            self.run.compare_later(saved)
        else:
            self.run.sample(saved)
        saved.foreign = True
        return saved

    def _meets_overwritten(self, applied: Applied, inside: _Inside, overwritten: Sequence[_Overwritten]) -> None:
        """What it has overwritten and saves is one value or the other for its backward: its derivative tells which."""
        if not any(one.saved(self.run) for one in overwritten):
            return
        if inside.given is None or inside.region is None:
            self.run.open_question = True
            self.run.uncovered("overwriting")
            return
        own = {storage_key(one.tensor) for one in inside.inputs}
        outside = [saved.alias for key, saved in inside.region.reads.items() if key not in own]
        judged = _Judged(self.run, overwritten, Derivative(applied.cls, inside.given, outside))
        applied.node.register_prehook(self.run.hook(judged.enter))
        applied.node.register_hook(self.run.hook(judged.leave))

    # ---- the proof

    def follow(self, node: Any, changed: Sequence[torch.Tensor]) -> None:
        """From now on, until the node has run, what is computed from these values is followed."""
        keys = map(storage_key, changed)
        self._trail = _Trail(node, {key for key in keys if key is not None})
        self.run.curious.add(self)

    def came_from(self, results: Sequence[torch.Tensor | None]) -> bool:
        """Whether any of the results comes from what was followed."""
        trail, self._trail = self._trail, None
        self._calm()
        if trail is None:
            return False
        return trail.escaped or any(r is not None and storage_key(r) in trail.storages for r in results)

    def called_in_backward(self, call: Call, result: Any) -> None:
        trail = self._trail
        if trail is None or current_node() is not trail.node:
            return
        with unobserved():
            fresh = overwritten(call)
            filled = {id(tensor) for tensor in fresh}
            read = (t for t in arguments(call.args, call.kwargs) if id(t) not in filled)
            if not any(storage_key(t) in trail.storages for t in read):
                trail.storages.difference_update(storage_key(t) or 0 for t in fresh if _is_whole(t))
                return
            if call.name in _ESCAPES:
                trail.escaped = True
            for made in (*tensors_in(result), *call.written):
                key = storage_key(made)
                if key is not None:
                    trail.storages.add(key)
                    trail.kept.append(made)

    def backward_within(self, roots: Sequence[torch.Tensor]) -> None:
        trail = self._trail
        if trail is not None and any(storage_key(root) in trail.storages for root in roots):
            trail.escaped = True  # what it gives to leaves cannot be followed


def _put_into(kept: Sequence[Saved], values: Sequence[torch.Tensor | None]) -> None:
    with torch.no_grad(), unobserved():
        for saved, value in zip(kept, values):
            if value is not None:
                write_into(saved.alias, value)


def _is_whole(tensor: torch.Tensor) -> bool:
    """Whether a tensor is all of its memory."""
    return tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()


@dataclass(frozen=True)
class _Overwritten:
    """An input that a forward has overwritten, without saying so."""

    input: _Input
    write: LiveWrite

    def saved(self, run: Run) -> Saved | None:
        """What has been saved of it behind the write."""
        return next((saved for saved in run.waiting(self.input.tensor) if saved.clock > self.write.clock), None)


class _Judged:
    """A node that saves what its forward has overwritten, in a reference run: it gets the value that it wants."""

    def __init__(self, run: Run, overwritten: Sequence[_Overwritten], derivative: Derivative) -> None:
        self._run, self._overwritten, self._derivative = run, overwritten, derivative
        self._kept: list[tuple[Saved, torch.Tensor | None]] = []

    def enter(self, gradients: Any) -> None:
        need = self._run.passing
        if need is None or self._is_right(gradients) is not False:
            return
        found = [(one, saved) for one in self._overwritten if (saved := one.saved(self._run)) is not None]
        found = [(one, s) for one, s in found if getattr(one.input.value, "shape", None) == s.alias.shape]
        memory, written = [saved for _, saved in found], [saved.alias.clone() for _, saved in found]
        _put_into(memory, [one.input.value for one, _ in found])
        wants_given = self._is_right(gradients)  # else it is no derivative by either
        _put_into(memory, written)
        for one, saved in found if wants_given else ():
            self._run.conflict("silent", saved, need.event, one.write)
            self._kept.append((saved, saved.value))
            saved.value = one.input.value

    def leave(self, results: Any, gradients: Any) -> None:
        while self._kept:
            saved, value = self._kept.pop()
            saved.value = value

    def _is_right(self, gradients: Any) -> bool | None:
        """Whether the node's backward gives the derivative, on the values as they are now."""
        self._run.turned = True
        try:
            return self._derivative.is_given_by(current_node(), gradients)
        finally:
            self._run.turned = False


class _Kept:
    """What one node keeps."""

    def __init__(self, nodes: PythonNodes, kept: Sequence[Saved], applied: Applied) -> None:
        self._nodes, self._kept, self._cls = nodes, kept, applied.cls
        self._bound = attributes(applied.node, kept)
        self._changed: list[tuple[Saved, LiveWrite]] = []
        self._now: list[tuple[Saved, torch.Tensor]] = []

    def enter(self, gradients: Any) -> None:
        run = self._nodes.run
        self._changed = []
        if run.passing is None:
            return
        for saved in self._kept:
            writes = run.writes_since(saved)
            if not writes:
                run.look_now(saved)
                writes = run.writes_since(saved)
            if writes and run.changed(saved, writes):
                self._changed.append((saved, writes[0]))
        others = self._rebound()
        if not self._changed:
            return
        if run.policy.reference:
            self._put_back()
        self._nodes.follow(current_node(), [*(saved.alias for saved, _ in self._changed), *others])

    def _rebound(self) -> list[torch.Tensor]:
        """What stands under attributes that have been bound anew. In a reference run they get back what they were."""
        run, node = self._nodes.run, current_node()
        with unobserved():
            found = list(rebound(node, self._bound))
        for one in found:
            self._changed.append((one.saved, binding(run, functions_within(self._cls.backward), one.name)))
            if run.policy.reference:
                setattr(node, one.name, one.right.clone())
        return [getattr(node, one.name) for one in found]

    def _put_back(self) -> None:
        fitting = [s for s, _ in self._changed if s.value is not None and s.value.shape == s.alias.shape]
        with unobserved():
            self._now = [(saved, saved.alias.detach().clone()) for saved in fitting]
        _put_into(fitting, [saved.value for saved in fitting])

    def leave(self, results: Sequence[torch.Tensor | None], gradients: Any) -> Any:
        run = self._nodes.run
        if not self._changed or run.passing is None:
            return None
        changed, self._changed = self._changed, []
        for saved, write in changed if self._nodes.came_from(results) else ():
            run.conflict("silent", saved, run.passing.event, write, node=current_node())
        if not self._now:
            return None
        with torch.no_grad(), unobserved():
            results = tuple(r.clone() if r is not None else None for r in results)  # it may give back the very memory
        now, self._now = self._now, []
        _put_into([saved for saved, _ in now], [value for _, value in now])
        return results


# ---- what a backward reads ------------------------------------------------------------------------------------------


def _is_torchs(cls: Any) -> bool:
    return _code_of(cls).co_filename.startswith(_TORCH)


def _code_of(cls: Any) -> types.CodeType:
    backward: Any = cls.__dict__.get("backward") or getattr(cls, "backward", None)
    backward = getattr(backward, "__func__", backward)
    while hasattr(backward, "__wrapped__"):
        backward = backward.__wrapped__
    return getattr(backward, "__code__", _code_of.__code__)


_NAMES: dict[types.CodeType, frozenset[str]] = {}


def _reads(cls: Any, node: Any) -> Iterator[torch.Tensor]:
    """The tensors, and arrays as tensors, that the backward of ``cls`` can name, but for those torch has saved."""
    functions = functions_within(cls.backward)
    used = frozenset().union(*(_names_of(f.__code__) for f in functions))
    seen: set[int] = set()
    for name, value in vars(node).items():
        if name in used:
            yield from _tensors(value, _DEPTH, seen)
    for function in functions:
        for cell in function.__closure__ or ():
            yield from _tensors(_content(cell), 1, seen)
        for name in _names_of(function.__code__):
            if name in function.__globals__:
                yield from _tensors(function.__globals__[name], 1, seen)


def _tensors(value: Any, depth: int, seen: set[int]) -> Iterator[torch.Tensor]:
    if id(value) in seen or value is None or isinstance(value, (str, int, float, bool, types.ModuleType, type)):
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        if value.numel():
            yield value
    elif type(value).__module__ == "numpy" and hasattr(value, "__array_interface__"):
        yield from _array(value)
    elif depth > 0 and not callable(value):
        for item in _items(value):
            yield from _tensors(item, depth - 1, seen)


def _array(array: Any) -> Iterator[torch.Tensor]:
    try:
        if array.size:
            yield torch.from_numpy(array)
    except (TypeError, ValueError):  # a dtype, or strides, that torch does not know
        return


def _items(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())[:_WIDTH]
    if isinstance(value, (list, tuple)):
        return list(value[:_WIDTH])
    if is_own(value) or isinstance(value, types.SimpleNamespace):
        return list(getattr(value, "__dict__", {}).values())[:_WIDTH]
    return []


def _torchs(tensor: torch.Tensor) -> bool:
    """Whether torch owns the memory, so that its calls show who writes there."""
    try:
        with unobserved():  # else it is taken for a call of the user's that hands the memory out
            return bool(tensor.untyped_storage().resizable())
    except (RuntimeError, NotImplementedError, ValueError):
        return True


def functions_within(function: Any) -> tuple[types.FunctionType, ...]:
    """A function, what it wraps, and the functions in its closure."""
    todo: list[Any] = [function]
    found: dict[int, types.FunctionType] = {}
    while todo:
        one = todo.pop()
        one = getattr(one, "__func__", one)
        if id(one) in found:
            continue
        if isinstance(one, types.FunctionType):
            found[id(one)] = one
            todo += [
                content for cell in one.__closure__ or () if isinstance(content := _content(cell), types.FunctionType)
            ]
        if hasattr(one, "__wrapped__"):
            todo.append(one.__wrapped__)
    return tuple(found.values())


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _names_of(code: types.CodeType) -> frozenset[str]:
    """The names of attributes and globals in a code object, that of functions inside it included."""
    known = _NAMES.get(code)
    if known is None:
        inner = (_names_of(c) for c in code.co_consts if isinstance(c, types.CodeType))
        known = _NAMES[code] = frozenset(code.co_names).union(*inner)
    return known
