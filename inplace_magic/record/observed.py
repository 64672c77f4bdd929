"""What is observed while a replay runs, with its tensors, with its frames: saved tensors, writes, conflicts.

They stay in the sandbox where the cell runs; what leaves it is in evidence.py.
"""

from __future__ import annotations

import contextlib
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..storage import storage_key
from ..torch_private import next_sequence_number, raw_names, unobserved, version_of
from . import evidence
from .parts import parts_of

Stack = tuple[tuple[types.CodeType, int], ...]
UNKNOWN_VERSION = -1


class Reserved:
    """Bytes of the memory set aside, given back when whoever holds this is gone. (weakref.finalize takes ten times as
    long to make, and a table of it lives as long as the process.)"""

    __slots__ = ("_give_back", "_size")

    def __init__(self, give_back: Callable[[int], None], size: int) -> None:
        self._give_back, self._size = give_back, size

    def __del__(self) -> None:
        self._give_back(self._size)


class Saved:
    """A tensor that autograd keeps for a backward: what the pack hook hands to torch.

    One is made for every tensor that is saved, and most of them are never looked at: what is not set yet belongs to the
    class, what may be told later is.
    """

    value: torch.Tensor | None = None  # the clone, once a write has hit it
    lost = False  # its value is not kept: there was no memory, or nobody reads it
    foreign = False  # may be written without telling torch, or torch does not check it
    compared = False  # after each line
    repacked = False  # hooks of others decide what backward gets
    detached: LiveWrite | None = None  # by ``detach_()``: torch no longer lets a backward have it
    freed: evidence.Backward | None = None
    reserved: tuple[Reserved, ...] = ()  # goes with it
    origin: weakref.ref[torch.Tensor] | None = None  # what was saved, unless a node has saved what it gave itself
    _keys: tuple[int, ...] | None = None

    def __init__(self, tensor: torch.Tensor, stack: Stack, clock: int) -> None:
        # An alias, never the tensor itself: an output would hold its own graph alive in a cycle.
        self.alias = tensor.detach()
        self.version = version_of(tensor)
        self.stack = stack
        self.clock = clock
        self.origin = weakref.ref(tensor)

    @classmethod
    def bare(cls, tensor: torch.Tensor) -> Saved:
        """As much as it takes to answer as torch would: nobody looks at it any closer."""
        saved = cls(tensor, (), 0)
        saved.lost, saved.origin = True, None
        saved._keys = ()
        return saved

    @property
    def keys(self) -> tuple[int, ...]:
        """Where the value lies: several storages for a sparse tensor, none for what has no memory."""
        keys = self._keys
        if keys is None:
            with unobserved():
                parts = parts_of(self.alias)
                keys = self._keys = tuple(key for part in parts if (key := storage_key(part)) is not None)
        return keys

    @property
    def key(self) -> int | None:
        """The first of them."""
        keys = self.keys
        return keys[0] if keys else None

    @property
    def size(self) -> int:
        """Bytes."""
        alias = self.alias
        if alias.layout is torch.strided:
            return alias.numel() * alias.element_size()
        return sum(part.numel() * part.element_size() for part in parts_of(alias))

    def is_as(self, tensor: torch.Tensor) -> bool:
        """Whether this is all of that tensor's own memory, in the same shape."""
        return self.key is not None and self.key == storage_key(tensor) and self.alias.shape == tensor.shape

    @contextlib.contextmanager
    def put_back(self) -> Iterator[None]:
        """The memory holds the value as it was saved; afterwards it is as it is now. The version counter stays."""
        if self.value is None or self.value.shape != self.alias.shape or self.value.layout is not torch.strided:
            yield
            return
        with torch.no_grad(), unobserved():
            now = self.alias.clone()
            write_into(self.alias, self.value)
        try:
            yield
        finally:
            with torch.no_grad(), unobserved():
                write_into(self.alias, now)

    def untouched(self) -> bool:
        """Whether torch lets a backward have it: the version counter says that it is what it was."""
        return version_of(self.alias) == self.version and self.detached is None


def saved_by(node: Any) -> Iterator[Saved]:
    """What this node has saved through our hooks."""
    for name in raw_names(type(node)):
        try:
            raw = getattr(node, name)
            values = [one.data for one in (raw if isinstance(raw, (tuple, list)) else (raw,))]
        except (RuntimeError, AttributeError):  # freed
            continue
        for value in values:
            saved = getattr(value, "saved", value)
            if isinstance(saved, Saved):
                yield saved


class LiveWrite:
    """A write while the replay runs."""

    __slots__ = (
        "aliases",
        "by_list",
        "clock",
        "counted",
        "fed",
        "handed",
        "held",
        "how",
        "late",
        "leaf",
        "module",
        "moment",
        "of_graph",
        "of_leaf",
        "operation",
        "origin",
        "parameter",
        "stack",
        "stepped",
        "swapped",
        "version",
    )

    def __init__(
        self, stack: Stack, clock: int, operation: str, origin: str, version: int, how: evidence.How = "written"
    ) -> None:
        self.stack, self.clock, self.operation = stack, clock, operation
        self.origin, self.version, self.how = origin, version, how
        self.moment = next_sequence_number()  # nodes created before have less
        self.module: Any = None
        self.leaf = False  # a refused write: whether into the very leaf
        self.late = False  # whether into a view that was made before its base was written
        self.of_leaf = False  # or into a view of one, of whatever family torch says it is
        self.parameter = False  # whether that leaf, or the view's, is a module's parameter
        self.fed = False  # whether that leaf had a gradient by then
        self.of_graph = False  # a refused write: whether what is written into the leaf requires grad
        self.stepped = False  # whether an optimizer had stepped it, and no operand requires grad
        self.aliases: tuple[str, ...] = ()  # names of that very leaf where it was written
        self.held: tuple[str, ...] = ()  # paths over the names of its function to what is written
        self.handed = False  # into a gradient that backward had handed to the code that wrote
        self.by_list = False  # by one call that writes many tensors
        self.counted = True  # by the version counter of what is saved there: not where it went through ``.data``
        self.swapped: torch.Tensor | None = None


class LiveConflict:
    """A conflict while the replay runs."""

    __slots__ = (
        "certain",
        "effective",
        "family",
        "freed",
        "kind",
        "known",
        "made",
        "message",
        "need",
        "node",
        "saved",
        "stale",
        "value",
        "write",
    )

    def __init__(self, kind: evidence.Kind) -> None:
        self.kind: evidence.Kind = kind
        self.saved: Saved | None = None
        self.write: LiveWrite | None = None
        self.need: evidence.Backward | None = None
        self.freed: evidence.Backward | None = None
        self.family: str | None = None
        self.message = ""
        self.known = True
        self.certain = False  # verified without a reference run, which would not show it
        self.effective = True  # the write has changed values
        self.made: Stack | None = None  # where an inference tensor came from
        self.node: str | None = None
        self.stale: int | None = None  # that node's number
        self.value: torch.Tensor | None = None


def write_into(memory: torch.Tensor, value: torch.Tensor) -> None:
    """Puts values into memory past its version counter, also where one element of it stands for many."""
    memory = memory.data
    for dimension, stride in enumerate(memory.stride()):
        if stride == 0 and memory.size(dimension) > 1:
            memory, value = memory.narrow(dimension, 0, 1), value.narrow(dimension, 0, 1)
    memory.copy_(value)


def differ(value: torch.Tensor | None, now: torch.Tensor) -> bool:
    """Whether memory no longer holds the value that was kept. False where that cannot be told."""
    if value is None:
        return False
    if value.is_nested or now.is_nested:
        return False  # has no sizes to be compared by
    if value.shape != now.shape:
        return True
    if value.layout is not torch.strided:
        ones, others = parts_of(value), parts_of(now)
        return len(ones) != len(others) or any(differ(one, other) for one, other in zip(ones, others))
    try:
        if torch.equal(value, now):
            return False
        with torch.no_grad():
            return bool(((value != now) & ~(value.isnan() & now.isnan())).any())
    except (RuntimeError, NotImplementedError, TypeError):  # a layout that cannot be compared
        return False
