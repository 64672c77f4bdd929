"""Gradients that backward hands to the user's code, which writes into them.

Autograd hands one and the same tensor to all operands of a sum, so that a hook which scales what it is given in place
scales the gradient of others, too; and so does the backward of a custom Function, a module's backward hook, and a hook
that hands out one buffer twice. (The documentation of ``Tensor.register_hook`` and of ``torch.autograd.Function``
forbids it; nothing checks it.)

NOTE [Written gradients]. While a backward runs, a write of the user's own is followed: whichever node gets that memory
afterwards, and is not reached from the node for which the write was made, gets a wrong gradient. That is the proof in
a watched run. Where the sum has been formed before such a node runs, memory is not shared any more; a rerun decides
then. In a reference run the write reaches the node that it is made for alone, everybody else gets the gradient from
before. A hook writes before its node runs, a Function's backward while it does, a module's full backward hook after.

The gradient of a sum is one number, expanded: a write into an element of it reaches all of them. In a reference run its
elements have memory of their own.
"""

from __future__ import annotations

import dis
import functools
import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...source.location import kind_of, user_stack
from ...storage import storage_key
from ...torch_private import (
    ENGINE_CODE,
    FUNCTION_BACKWARD_CODE,
    MODULE_HOOK_FUNCTION,
    current_node,
    unobserved,
    version_of,
)
from ..observed import LiveWrite, Saved, differ
from ..operations import tensors_in
from .events import Applied, Call, Detector, Passing, Run
from .sums import Sums, WrittenGradient, before_node

_MODULE_HOOKS, _FUNCTIONS = torch.utils.hooks.__file__, torch.autograd.function.__file__


@dataclass
class _Written:
    """A write into memory that may be a gradient of others. ``before`` is that whole memory as it was."""

    node: Any
    write: LiveWrite
    tensor: torch.Tensor  # held, so that its address is nobody else's meanwhile
    before: torch.Tensor
    after: bool  # its node had run

    def as_was(self, gradient: torch.Tensor) -> torch.Tensor:
        """A gradient in that memory, as it was before the write."""
        return self.before.as_strided(gradient.shape, gradient.stride(), gradient.storage_offset())


class HandedGradients(Detector):
    """See NOTE [Written gradients]."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._passing: Passing | None = None
        self._lent: set[tuple[Any, int | None]] = set()  # nodes and storages
        self._expanded: set[int | None] = set()  # storages of gradients that were one number each
        self._given: set[int] = set()  # storages that a node has got for its gradient after a hook wrote them
        self._written: dict[int, list[_Written]] = {}
        self._below: dict[Any, set[Any]] = {}
        self._looking = False
        self._sums = Sums(run)
        self._listened: type | None = None  # the nodes on which modules' hooks hang

    def applied(self, applied: Applied) -> None:
        if applied.cls is MODULE_HOOK_FUNCTION and applied.node is not None:
            self._listened = type(applied.node)

    def backward_begins(self, passing: Passing) -> None:
        self._passing = passing
        self._sums.begins(passing, self._listened)
        for node in passing.nodes if self.run.policy.reference else ():
            passing.handles.append(node.register_hook(self.run.hook(self._apart)))

    def _apart(self, gradients: Sequence[torch.Tensor | None], *rest: Any) -> tuple[torch.Tensor | None, ...]:
        """The gradients that a node gives, with memory for each of their elements."""
        settled = list(gradients)
        for at, gradient in enumerate(gradients):
            with unobserved(), torch.no_grad():
                if gradient is not None and gradient.layout is torch.strided and 0 in gradient.stride():
                    settled[at] = dense = gradient.clone(memory_format=torch.contiguous_format)
                    self._expanded.add(storage_key(dense))
        return tuple(settled)

    def backward_ends(self, passing: Passing, result: Any) -> None:
        self._passing = None
        for everything in (self._lent, self._expanded, self._given, self._written, self._below):
            everything.clear()
        self._sums.ends()
        self._looking = False

    def calls_in_backward(self, call: Call) -> None:
        if not call.written or self._passing is None:
            return
        callback = _callback(sys._getframe(1))
        if not callback:
            return
        node = current_node()
        if node is None:
            return
        gradient = _handed(callback, call.written)
        if gradient is not None:
            self.run.open_question = True
        for tensor in call.written:
            if tensor.layout is not torch.strided or (tensor.is_leaf and tensor.requires_grad):
                continue
            key = storage_key(tensor)
            if key is None or any(_same(leaf.grad, key) for leaf in self._passing.leaves):
                continue
            self._follow(call, tensor, key, node, callback, gradient)

    def _follow(
        self,
        call: Call,
        tensor: torch.Tensor,
        key: int,
        node: Any,
        callback: list[types.FrameType],
        handed: torch.Tensor | None,
    ) -> None:
        write = LiveWrite(user_stack(sys._getframe(2)), self.run.tick(), call.name, "user", version_of(tensor))
        write.handed = True
        write.how = "expanded" if key in self._expanded else "written"
        when = _when(callback)
        self._written.setdefault(key, []).append(
            _Written(node, write, tensor, _memory(tensor).clone(), when == "after")
        )
        if when == "before":  # a hook that hands out this memory
            self._note_given(node, key)
        if self.run.policy.reference and (handed is not None or key in self._given) and when != "after":
            self._lend(tensor, write, node, key, when)
            return
        if handed is not None and storage_key(handed) == key:
            first = next(one for one in self._written[key] if one.node is node)
            self._sums.follow(WrittenGradient(node, first.write, handed.detach(), first.as_was(handed)))
        if not self._looking:
            self._looking = True
            assert self._passing is not None
            for other in self._passing.nodes:
                self._passing.handles.append(before_node(other, self.run.hook(self._arriving(other))))

    def _note_given(self, node: Any, key: int) -> None:
        def look(gradients: Sequence[torch.Tensor | None]) -> None:
            if any(_same(g, key) for g in gradients):
                self._given.add(key)

        assert self._passing is not None
        self._passing.handles.append(node.register_prehook(self.run.hook(look)))

    # ---- a watched run, and what comes after a node

    def _arriving(self, node: Any) -> Any:
        def look(gradients: Sequence[torch.Tensor | None]) -> tuple[torch.Tensor | None, ...] | None:
            wrong = [
                (i, found) for i, g in enumerate(gradients) if g is not None and (found := self._of_others(node, g))
            ]
            for _, (written, right) in wrong:
                assert self._passing is not None
                self.run.conflict("silent", Saved(right, (), self.run.tick()), self._passing.event, written.write)
            if not wrong or not self.run.policy.reference:
                return None
            settled = list(gradients)
            for i, (_, right) in wrong:
                settled[i] = right
            return tuple(settled)

        return look

    def _of_others(self, node: Any, gradient: torch.Tensor) -> tuple[_Written, torch.Tensor] | None:
        """The write that was not meant for the node, and the gradient as it would have been."""
        with unobserved(), torch.no_grad():
            writes = self._written.get(storage_key(gradient) or 0)
            if not writes or gradient.layout is not torch.strided:
                return None
            last = writes[-1]
            if node is last.node or node in self._reached_from(last.node):
                return None
            first = next(w for w in writes if w.node is last.node)
            right = first.as_was(gradient)
            return (last, right.clone()) if differ(right, gradient) else None

    def _reached_from(self, node: Any) -> set[Any]:
        found = self._below.get(node)
        if found is None:
            found, todo = set(), [node]
            while todo:
                for following, _ in todo.pop().next_functions:
                    if following is not None and following not in found:
                        found.add(following)
                        todo.append(following)
            self._below[node] = found
        return found

    # ---- a reference run

    def _lend(self, gradient: torch.Tensor, write: LiveWrite, node: Any, key: int, when: str) -> None:
        """Lets the write reach its own node alone."""
        assert self._passing is not None
        if (node, key) in self._lent:
            return
        self._lent.add((node, key))
        event = self._passing.event
        alias, value = gradient.detach(), gradient.detach().clone()

        def settle(gradients: Sequence[torch.Tensor | None], *rest: Any) -> tuple[torch.Tensor | None, ...]:
            with unobserved(), torch.no_grad():
                settled = tuple(g.clone() if g is not None and storage_key(g) == key else g for g in gradients)
                changed = differ(value, alias)
                alias.copy_(value)
            if changed:
                self.run.conflict("silent", Saved(alias, (), self.run.tick()), event, write)
            return settled

        register = node.register_prehook if when == "before" else node.register_hook
        self._passing.handles.append(register(self.run.hook(settle)))


def _same(tensor: torch.Tensor | None, key: int) -> bool:
    return tensor is not None and storage_key(tensor) == key


def _memory(tensor: torch.Tensor) -> torch.Tensor:
    """All of a tensor's storage, as one row of its elements."""
    with torch.no_grad(), unobserved():
        return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage())


# ---- which callback of the engine's this is -------------------------------------------------------------------------


def _callback(frame: types.FrameType | None) -> list[types.FrameType]:
    """The frames from ``frame`` out to what the engine has called: the user's code, or torch's that runs the user's.
    Empty where that is something else, checkpoint for one."""
    frames: list[types.FrameType] = []
    while frame is not None and frame.f_code is not ENGINE_CODE:
        frames.append(frame)
        frame = frame.f_back
    while frames and frames[-1].f_code.co_filename == _MODULE_HOOKS and len(frames) > 1:
        if kind_of(frames[-2].f_code.co_filename) == "user":
            return frames
        frames.pop()
    if frames and frames[-1].f_code is FUNCTION_BACKWARD_CODE:
        # ``once_differentiable`` may stand between it and the user's.
        inner = (f for f in frames[-2::-1] if f.f_code.co_filename != _FUNCTIONS)
        own = next(inner, None) if len(frames) > 1 else None
        return frames if own is not None and kind_of(own.f_code.co_filename) == "user" else []
    return frames if frames and kind_of(frames[-1].f_code.co_filename) == "user" else []


def _when(callback: Sequence[types.FrameType]) -> str:
    """When the callback runs: ``before`` its node, as its ``own`` backward, or ``after`` it, as all hooks of modules do
    (those of their outputs hang on a node that hands on what it gets)."""
    top = callback[-1].f_code
    if top.co_filename != _MODULE_HOOKS:
        return "own" if top is FUNCTION_BACKWARD_CODE else "before"
    return "after"


def _handed(callback: Sequence[types.FrameType], written: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """The gradient in which ``written`` lies, of those that the callback was handed."""
    top = callback[-1]
    keys = {storage_key(t) for t in written}
    if top.f_code is FUNCTION_BACKWARD_CODE:
        values: Iterator[object] = iter(top.f_locals.get("args", ()))
    else:
        values = _arguments(callback[-2] if top.f_code.co_filename == _MODULE_HOOKS else top)
    for value in values:
        for tensor in tensors_in(value):
            if storage_key(tensor) in keys and not (tensor.is_leaf and tensor.requires_grad):
                return tensor
    return None


def _arguments(frame: types.FrameType) -> Iterator[object]:
    """What a function was called with, as far as its names still stand for that."""
    code = frame.f_code
    stores = _stores(code)
    for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        if all(offset > frame.f_lasti for offset in stores.get(name, ())):
            yield frame.f_locals.get(name)


@functools.lru_cache(maxsize=256)
def _stores(code: types.CodeType) -> dict[str, list[int]]:
    """Where a function's names are bound anew. ``g *= 2`` leaves the tensor what it was."""
    found: dict[str, list[int]] = {}
    before = ""
    for one in dis.get_instructions(code):
        if one.opname.startswith("STORE_") and isinstance(one.argval, (str, tuple)) and not before.endswith("="):
            for name in one.argval if isinstance(one.argval, tuple) else (one.argval,):
                found.setdefault(name, []).append(one.offset)
        before = one.argrepr if one.opname == "BINARY_OP" else ""
    return found
