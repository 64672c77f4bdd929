"""One tensor under two names: it is changed through one of them, and read through the other as if it were not.

``raw = x``, then ``x -= mean``: both are centred. ``h = o * c.tanh_()``: whoever reads ``c`` later reads its tanh. Or it is
kept by a hook, ``features[name] = output``, and a module with ``inplace=True`` goes on with it. Torch follows such a write,
so that the gradient is that of what was run; what was meant is another thing.

Proof: the very tensor under both names, values that have changed, and a graph in which both readings take part; of what is
kept, that the graph goes through it.
"""

from __future__ import annotations

import ast
import collections
import dis
import functools
import linecache
import sys
import types
import weakref
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from ...session.user_objects import has_own_attributes, names_in, steps
from ...source.document import FileSource
from ...source.editor import Code
from ...source.location import kind_of
from ...source.own import is_a
from ...source.second_names import ReadOn, read_on, returned_argument
from ...torch_private import sequence_number, unobserved
from ..author import Author, author_at
from ..observed import LiveWrite, Saved, Stack, differ
from .events import Call, Detector, Passing, Run
from .nodes import computed, node_of

_LOOKS = 4  # at what one line writes
_PENDING = 64
_CALLERS = 4
_LEVELS, _WIDTH, _MOST = 3, 64, 4_000  # of objects in objects that are looked through
_CONTAINERS = (list, tuple, dict, collections.deque)


@dataclass(frozen=True)
class _Place:
    """An instruction of the user's in its text, and what is read behind it."""

    code: Code
    node: ast.AST
    read_on: tuple[ReadOn, ...]


@dataclass(frozen=True)
class _Changed:
    """A write that changed values. ``names`` lead to what was written, and are read later, or keep it; ``bound`` is where
    one was."""

    author: Author
    names: tuple[str, ...]
    bound: Stack
    kept: bool
    operation: str
    clock: int


class SecondNames(Detector):
    """Follows writes into what has another name, or is read on beside the result."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._places: dict[tuple[types.CodeType, int], _Place | None] = {}
        self._looks: collections.Counter[Stack] = collections.Counter()
        self._pending: dict[int, _Changed] = {}  # by the number of the node that the write made

    def calls(self, call: Call) -> None:
        tensors = [one for one in self.run.written(call) if is_a(one, torch.Tensor)]
        if len(tensors) != 1 or len(self._pending) >= _PENDING:
            return
        with unobserved():
            if not computed(tensors[0]):
                return
            author = author_at(sys._getframe(1))
            if self._looks[author.stack] >= _LOOKS:
                return
            self._looks[author.stack] += 1
            names, bound = self._read_later(tensors[0], author.stack, sys._getframe(1))
            kept = () if names or author.origin != "nn" else _keeping(tensors[0], sys._getframe(1))
            if not names and not kept:
                return
            before = tensors[0].detach().clone()
        changed = _Changed(author, names or kept, bound, bool(kept), call.name, self.run.tick())
        self.run.after_operation(functools.partial(self._look, weakref.ref(tensors[0]), before, changed))

    def _read_later(self, tensor: torch.Tensor, stack: Stack, frame: types.FrameType) -> tuple[tuple[str, ...], Stack]:
        """Names by which somebody reads the tensor behind the write, from the innermost frame outwards; where one is bound."""
        given_back = True  # the result of what is called in a frame is the tensor
        for spot, names in zip(stack[:_CALLERS], _names(frame)):
            place = self._place(spot)
            written = [one for one in place.read_on if _leads(names, one.name, tensor)] if place is not None else []
            if place is None or not written:
                break
            others = {name for one in written for name in one.others if _holds(names.get(name), tensor)}
            bound = next(filter(None, (_binding(spot, name) for name in sorted(others))), ())
            others |= {one.name for one in written if one.beside and given_back}
            if others:
                return tuple(sorted(others)), bound
            given_back = any(returned_argument(place.code, place.node, one.name) for one in written)
        return (), ()

    def _place(self, spot: tuple[types.CodeType, int]) -> _Place | None:
        if spot not in self._places:
            where = self.run.sources.spot(*spot)
            code = self.run.sources.code(where.cell) or _of_file(where.filename)
            node = code.at(where) if code is not None else None
            known = _Place(code, node, read_on(code, node)) if code is not None and node is not None else None
            self._places[spot] = known
        return self._places[spot]

    def _look(self, written: weakref.ref[torch.Tensor], before: torch.Tensor, changed: _Changed) -> None:
        tensor = written()
        with unobserved():
            node = node_of(tensor) if tensor is not None else None
            if tensor is not None and node is not None and differ(before, tensor.detach()):
                self._pending[sequence_number(node)] = changed

    # ---- the proof

    def backward_begins(self, passing: Passing) -> None:
        if not self._pending:
            return
        readings: collections.Counter[int] = collections.Counter()
        for node in passing.nodes:
            for following, _ in node.next_functions:
                if following is not None and (number := sequence_number(following)) in self._pending:
                    readings[number] += 1
        for number, count in readings.items():
            if count > 1 or self._pending[number].kept:
                self._report(self._pending.pop(number), passing)

    def _report(self, changed: _Changed, passing: Passing) -> None:
        write = LiveWrite(changed.author.stack, changed.clock, changed.operation, changed.author.origin, 0)
        write.how = "kept" if changed.kept else "aliased"
        write.held, write.module = changed.names, changed.author.module
        conflict = self.run.conflict(
            "silent", Saved(torch.zeros(1), changed.bound, changed.clock), passing.event, write
        )
        if conflict is not None:
            conflict.certain = True
            conflict.value = None


def _keeping(tensor: torch.Tensor, frame: types.FrameType | None) -> tuple[str, ...]:
    """The object's attribute, or the container, that keeps the very tensor, by the innermost frame that knows one."""
    for names in _names(frame):
        level = [*names.items()]
        for _ in range(_LEVELS):
            for path, value in level:
                if _holds(value, tensor):
                    return () if path in names and value is tensor else (path,)
            inner = [step for path, value in level if _is_open(value) for step in steps(path, value, _WIDTH)]
            level = [(path, value) for path, value in inner if path is not None][:_MOST]
    return ()


def _is_open(value: object) -> bool:
    return is_a(value, (*_CONTAINERS, torch.nn.Module)) or has_own_attributes(value)


def _binding(spot: tuple[types.CodeType, int], name: str) -> Stack:
    """The last instruction ahead of one that binds a name."""
    code, lasti = spot
    stores = [
        one.offset
        for one in dis.get_instructions(code)
        if one.opname.startswith("STORE_") and one.argval == name and one.offset < lasti
    ]
    return ((code, stores[-1]),) if stores else ()


@functools.lru_cache(maxsize=64)
def _of_file(path: str) -> Code | None:
    """A module that is no document of the session."""
    document = FileSource(0, "".join(linecache.getlines(path)), path=path)
    return Code(document) if document.tree is not None else None


def _names(frame: types.FrameType | None) -> Iterator[dict[str, object]]:
    """The names of the user's frames, from this one outwards."""
    while frame is not None:
        if kind_of(frame.f_code.co_filename) == "user":
            yield dict(names_in(frame))
        frame = frame.f_back


def _leads(names: dict[str, object], name: str, tensor: torch.Tensor) -> bool:
    """Whether a name, or an attribute of it, is this very tensor. An attribute may be computed, and is not asked for."""
    return "." in name or names.get(name) is tensor


def _holds(value: object, tensor: torch.Tensor) -> bool:
    if not is_a(value, _CONTAINERS):
        return value is tensor
    return any(item is tensor for item in (value.values() if is_a(value, dict) else value))
