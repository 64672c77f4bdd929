"""Writes into a tensor that a graph continues from, of which the graph never hears.

Through ``detach()`` or ``.data``, or as constants set under ``no_grad``, before anything saved the tensor, or in the forward
of a custom Function that does not mark it as dirty: the values change, and the gradient stays that of the old ones.

Proof: the tensor is read by an operation of the graph afterwards, and in backward a gradient arrives where the write
changed elements. A sum, noise and straight-through rounding through an alias are meant so, unless what is added has a
graph of its own, which is lost. In a Function nothing is: torch asks for mark_dirty.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...storage import storage_key
from ...torch_private import sequence_number, unobserved, version_of
from ..observed import LiveWrite, Saved
from ..operations import arguments
from ..past_errors import whole
from .aliases import DATA_GET, EXPORTS, called_by_user
from .events import Applied, Call, Detector, Passing, Run
from .nodes import computed, has_plain_values, node_of

_SUMS = frozenset({"add_", "sub_", "__iadd__", "__isub__"})
_MEANT = _SUMS | frozenset({
    "copy_", "round_", "floor_", "ceil_", "trunc_", "sign_", "sgn_", "frac_",
    "normal_", "uniform_", "bernoulli_", "random_", "set_", "resize_",
})  # fmt: skip
_MASKS = frozenset({"mul_", "__imul__"})
_FILLS = frozenset({"zero_", "fill_"})  # of a part
_MADE, _READ = "inplace_magic written", "inplace_magic read"  # in a node's metadata, which lives as long as the node


@dataclass(eq=False)
class Unheard:
    """A write past the graph of ``base``: which elements it changed. ``undeclared``: in a Function's forward."""

    write: LiveWrite
    base: weakref.ref[torch.Tensor]
    alias: torch.Tensor
    changed: torch.Tensor
    output: int  # which of its node's outputs the base is
    undeclared: bool = False
    author: weakref.ref[Any] | None = None  # the node of that Function

    def is_heard_by(self, node: Any) -> bool:
        """Whether a graph from ``node`` comes to what was written by the Function that wrote it, as from its result."""
        author = self.author() if self.author is not None else None
        todo, seen = [node] if author is not None else [], set()
        while todo:
            one = todo.pop()
            if one is author:
                return True
            if one is not None and one not in seen and sequence_number(one) > sequence_number(author):
                seen.add(one)
                todo += [following for following, _ in one.next_functions]
        return False


@dataclass
class _Hit:
    alias: torch.Tensor
    base: torch.Tensor
    before: torch.Tensor
    undeclared: bool


class PastTheGraph(Detector):
    """Finds them, and in a reference run makes them part of the graph."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.aliased: dict[int, weakref.ref[torch.Tensor]] = {}  # storages of graph tensors with a detached alias
        self._given: list[dict[int, torch.Tensor]] = []  # the inputs of the Functions under way, by storage
        self._unheard: dict[int, Unheard] = {}  # by storage, as long as its tensor can be read
        self._exported: dict[int, Saved] = {}  # what arrays share with such tensors, by storage
        self._seen = False  # there has been such a write

    def calls(self, call: Call) -> None:
        if (call.name == "detach" or call.func == DATA_GET) and call.args:
            tensor = call.args[0]
            if computed(tensor):
                key = storage_key(self.run.copies.of(tensor))
                if key is not None and self._base_at(key) is None:
                    self.aliased[key] = weakref.ref(tensor)
        elif self.run.policy.reference and call.name in EXPORTS and call.args and called_by_user():
            self._export(storage_key(call.args[0]) or 0)

    def _export(self, key: int) -> None:
        """An array, or another library, may write there. (A watch lets it: noise or rounding may be meant so. A rewrite
        is no fix where it leaves such a write to what the graph reads.)"""
        base = self._base_at(key)
        if base is not None and key not in self._exported:
            saved = self._exported[key] = Saved(base, (), self.run.tick())
            self.run.compare_later(saved)

    def logs(self, key: int, write: LiveWrite) -> None:
        saved = self._exported.pop(key, None) if not write.operation else None
        base = self._base_at(key) if saved is not None else None
        if base is not None and saved is not None and saved.value is not None:
            with unobserved():
                self._note(_Hit(base, base, saved.value, False), write)

    def called(self, call: Call, result: Any) -> None:
        if self._unheard:
            # A write reads nothing for the graph that it goes past.
            written = {id(one) for one in call.written}
            self._mark_read([one for one in arguments(call.args, call.kwargs) if id(one) not in written], result)

    def cares(self, written: Sequence[torch.Tensor]) -> bool:
        """Whether a write may have to be seen although nothing is saved where it writes."""
        return bool(self.aliased) or bool(self._given) or any(map(_unrecorded, written))

    # ---- in a Function's forward

    def applies(self, cls: Any, args: Sequence[Any], inputs: Sequence[torch.Tensor]) -> None:
        given = {key: t for t in inputs if computed(t) and (key := storage_key(t)) is not None}
        self._given.append(given)

    def applied(self, applied: Applied) -> None:
        given = self._given.pop()
        for key, tensor in given.items():
            unheard = self._unheard.get(key)
            if unheard is not None and unheard.undeclared and id(tensor) in applied.dirty:
                del self._unheard[key]
                self._quiet()
        for unheard in (self._unheard.get(key) for key in given if applied.node is not None):
            if unheard is not None and unheard.undeclared and unheard.author is None:
                unheard.author = weakref.ref(applied.node)
        if self._unheard:
            with unobserved():
                self._mark_read(applied.inputs, applied.result)

    # ---- the write

    def hits(self, call: Call) -> list[_Hit]:
        """The written tensors that the graph of another one goes past."""
        inner = self._given[-1] if self._given else {}
        found = []
        for tensor in call.written:
            key = storage_key(tensor) or 0
            if key in inner:
                base, undeclared = inner[key], True
            elif _is_meant(call):
                continue
            elif _unrecorded(tensor):
                base, undeclared = self.run.copies.behind(whole(tensor)), False
                # Of what is saved, torch will refuse the backward.
                if not _sets_elements(call) or self.run.waiting(base):
                    continue
            elif tensor.requires_grad or (alias := self._base_at(key)) is None:
                continue
            else:
                base, undeclared = alias, False
            found.append(_Hit(tensor, base, self.run.copies.of(base).detach().clone(), undeclared))
        return found

    def track(self, call: Call, hits: Sequence[_Hit]) -> tuple[list[Any], dict[str, Any]] | None:
        """The arguments with which the write becomes part of the graph; None where that cannot be."""
        bases = [hit.base for hit in hits]
        if any(hit.alias.dtype != hit.base.dtype for hit in hits):  # the real numbers that a complex tensor is made of
            return None
        if not self.run.policy.reference or any(hit.undeclared and not hit.alias.requires_grad for hit in hits):
            return None
        if any(self.run.waiting(base) or self.run.waiting(self.run.copies.of(base)) for base in bases):
            return None
        with torch.enable_grad():
            for base in bases:
                self.run.copies.create(base, whole=True)
            heard = {id(hit.alias): self.run.copies.stretch(hit.base, hit.alias) for hit in hits}
        args, kwargs = self.run.copies.replace(call.args, call.kwargs)
        return (
            [heard.get(id(old), new) for old, new in zip(call.args, args)],
            {k: heard.get(id(call.kwargs[k]), new) for k, new in kwargs.items()},
        )

    def note(self, call: Call, hits: Sequence[_Hit]) -> None:
        """The write has been made."""
        author = self.run.author(sys._getframe(1), call.written)
        for hit in hits:
            write = LiveWrite(author.stack, self.run.tick(), call.name, "user", version_of(hit.base))
            write.held = author.held
            self._note(hit, write)

    def _note(self, hit: _Hit, write: LiveWrite) -> None:
        now = self.run.copies.of(hit.base)
        node, own = node_of(now), node_of(hit.base)
        if node is None or hit.before.shape != now.shape:
            return
        changed = (hit.before != now.detach()) & ~(hit.before.isnan() & now.detach().isnan())
        if not bool(changed.any()):  # ``x.data[0] *= 2`` writes once more what it has written
            return
        unheard = Unheard(write, weakref.ref(hit.base), hit.base.detach(), changed, now.output_nr, hit.undeclared)
        self._seen = True
        self._unheard = {key: one for key, one in self._unheard.items() if one.base() is not None}
        self._unheard[storage_key(hit.base) or 0] = unheard
        self.run.curious.add(self)
        _note_on(node, _MADE, unheard)
        if own is not None and own is not node:  # a Function is given the tensor itself, and not its copy
            _note_on(own, _MADE, unheard)

    def _base_at(self, key: int) -> torch.Tensor | None:
        """The tensor whose memory, or whose copy's, this is. An address may belong to another by now."""
        reference = self.aliased.get(key)
        base = reference() if reference is not None else None
        return base if base is not None and key in (storage_key(base), storage_key(self.run.copies.of(base))) else None

    # ---- the proof

    def _mark_read(self, tensors: Sequence[torch.Tensor], result: Any) -> None:
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
                self._quiet()
                continue
            for output in result if isinstance(result, (tuple, list)) else (result,):
                node = node_of(output) if isinstance(output, torch.Tensor) else None
                within = unheard.undeclared and self._given
                own = node is not None and unheard.author is not None and unheard.author() is node
                if node is not None and not within and not own and not unheard.is_heard_by(node_of(tensor)):
                    _note_on(node, _READ, unheard)  # what a Function reads of its own is judged in python_nodes.py

    def _quiet(self) -> None:
        if not self._unheard:
            self.run.curious.discard(self)

    def backward_begins(self, passing: Passing) -> None:
        if not self._seen:
            return
        read = {unheard for node in passing.nodes for unheard in node.metadata.get(_READ, ())}
        for node in passing.nodes if read else ():
            for unheard in node.metadata.get(_MADE, ()):
                if unheard in read:
                    hook = self.run.hook(self._arriving(unheard, passing))
                    passing.handles.append(node.register_prehook(hook))

    def _arriving(self, unheard: Unheard, passing: Passing) -> Callable[[Any], None]:
        def look(gradients: Sequence[torch.Tensor | None]) -> None:
            gradient = gradients[unheard.output]
            if gradient is None or gradient.shape != unheard.changed.shape or gradient.layout != torch.strided:
                return
            with torch.no_grad():
                wrong = unheard.undeclared or bool((gradient[unheard.changed] != 0).any())
            if wrong:
                clash = self.run.conflict(
                    "silent", Saved(unheard.alias, (), self.run.tick()), passing.event, unheard.write
                )
                if clash is not None and unheard.undeclared:
                    clash.certain = True

        return look


def _unrecorded(tensor: torch.Tensor) -> bool:
    """Whether a write made now, under ``no_grad``, goes past the graph that the tensor, or what it is a view of, has."""
    return not torch.is_grad_enabled() and has_plain_values(tensor) and computed(whole(tensor))


def _sets_elements(call: Call) -> bool:
    """``h[mask] = 0``, ``h[0].zero_()``, ``h.masked_fill_(mask, 0)``, ``h *= mask``, and not in a copy that was made for that: what a
    straight-through estimator computes under ``no_grad`` (a rounding, a clamp, a scale) is meant to have the gradient of what it was
    computed of.
    """
    written, given = call.written[0], call.args[2 if call.name == "__setitem__" else 1 :]
    if type(node_of(whole(written))).__name__ == "CloneBackward0":
        return False
    if call.name in _MASKS:
        mask = given[0] if given else None
        return isinstance(mask, torch.Tensor) and has_plain_values(mask) and bool(((mask == 0) | (mask == 1)).all())
    if call.name in _FILLS:
        return written is not whole(written) and not any(isinstance(one, torch.Tensor) for one in given)
    return call.name in ("masked_fill_", "index_fill_") or (
        call.name == "__setitem__" and bool(given) and isinstance(given[0], (int, float))
    )


def _is_meant(call: Call) -> bool:
    return call.name in _MEANT and not (
        call.name in _SUMS and any(t.requires_grad for t in arguments(call.args[1:], call.kwargs))
    )


def _note_on(node: Any, key: str, unheard: Unheard) -> None:
    node.metadata.setdefault(key, []).append(unheard)
