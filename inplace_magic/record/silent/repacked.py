"""Saved tensors that hooks of others pack: ``save_on_cpu``, hooks of the person's own, ``checkpoint`` without reentry.

The innermost hooks win, so ours never see these tensors, and torch compares no version where any hooks are. Therefore
hooks of others are wrapped while they are entered. What they pack is compared with what they give back:

- where the packed object holds tensors (the saved one itself, a copy in host memory, a staging buffer), with these
  tensors as they were when they were packed, so that hooks which round or compress are no finding;
- what a checkpoint recomputes, with the tensor that the forward had saved (recomputed.py tells who changed it).

Proof: second_run.py. A packed object without any tensor in it is not looked at, and said to be so.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from ...source.location import user_stack
from ...torch_private import CHECKPOINT_HOOKS, RECOMPUTATION_HOOKS, current_node, unobserved, version_of
from ..observed import LiveWrite, Reserved, Saved, Stack, differ
from .events import Detector, Passing, Run
from .regions import Region
from .second_run import near

_LIMIT = 256 * 2**20  # bytes of what checkpoints would have released
_ITEMS = 20


class Packed:
    """What torch keeps in place of the saved tensor. ``held`` are the tensors in what the hooks of others made."""

    __slots__ = ("given", "held", "inner", "late", "region", "saved")

    def __init__(self, saved: Saved | None, inner: Any, held: tuple[Saved, ...], region: Region | None) -> None:
        self.saved = saved
        self.inner = inner
        self.held = held
        self.region = region
        self.late: torch.Tensor | None = None  # the value that the operation gave it after it was packed
        self.given: tuple[torch.Tensor, torch.Tensor] | None = None  # in this backward: as torch reads it, as it was


class Repacked(Detector):
    """Wraps hooks of others while they are entered."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._wrapped: list[tuple[Any, Any]] = []
        self._kept = 0
        self._recent: tuple[Any, list[Packed]] = (None, [])  # what the node that is running has read

    def begins(self) -> None:
        detector = self
        plain_enter, plain_exit = saved_tensors_hooks.__enter__, saved_tensors_hooks.__exit__

        def enter(hooks: Any) -> None:
            if detector.run.is_ours(hooks) or type(hooks) in RECOMPUTATION_HOOKS:
                return plain_enter(hooks)
            pair = hooks.pack_hook, hooks.unpack_hook
            with detector.run.ours:
                region = detector._open(hooks)
                hooks.pack_hook, hooks.unpack_hook = detector._pack(pair[0], region), detector._unpack(pair[1])
            try:
                return plain_enter(hooks)
            finally:
                hooks.pack_hook, hooks.unpack_hook = pair

        def leave(hooks: Any, *exc: object) -> None:
            with detector.run.ours:
                detector._close(hooks)
            return plain_exit(hooks, *exc)

        self.run.put(saved_tensors_hooks, "__enter__", enter)
        self.run.put(saved_tensors_hooks, "__exit__", leave)

    def backward_ends(self, passing: Passing, result: Any) -> None:
        for one in self._recent[1]:
            one.given = None
        self._recent = None, []

    # ---- regions of checkpoints

    def _open(self, hooks: Any) -> Region | None:
        if type(hooks) not in CHECKPOINT_HOOKS:
            return None
        region: Region = self.run.checkpoint_begins(user_stack(sys._getframe(2)))
        self._wrapped.append((hooks, region))
        return region

    def _close(self, hooks: Any) -> None:
        if self._wrapped and self._wrapped[-1][0] is hooks:
            self.run.checkpoint_ends(self._wrapped.pop()[1])

    # ---- packing

    def _pack(self, theirs: Callable[[torch.Tensor], Any], region: Region | None) -> Callable[[torch.Tensor], Any]:
        def pack(tensor: torch.Tensor) -> Any:
            with self.run.seeing():  # the person's own code, called in the midst of an operation
                inner = theirs(tensor)
            with self.run.ours:
                return self._packed(tensor, inner, user_stack(sys._getframe(1)), region)
            return inner

        return pack

    def _packed(self, tensor: torch.Tensor, inner: Any, stack: Stack, region: Region | None) -> Any:
        self.run.packed_elsewhere = True
        self.run.counts["saves"] += 1
        if region is not None:
            if self._kept > _LIMIT:
                self.run.uncovered("recomputed")
                return Packed(None, inner, (), region)
            saved = self._note(tensor, stack)
            self._kept += saved.size
            saved.reserved += (Reserved(self._let_go, saved.size),)
            return Packed(saved, inner, (), region)
        with unobserved():
            held = tuple(self._note(t, stack) for t in _tensors(inner))
        if not held:
            self.run.uncovered("repacked")
        same = next((saved for saved in held if saved.is_as(tensor)), None)
        packed = Packed(same or (held[0] if held else None), inner, held, None)
        if same is None and held and self.run.samples:
            self._await_operation(packed, tensor)
        return packed

    def _await_operation(self, packed: Packed, tensor: torch.Tensor) -> None:
        """Hooks have taken a copy; what the operation itself still writes there (rrelu its noise) is not in it."""
        with torch.no_grad(), unobserved():
            alias = tensor.detach()
            before, version = alias.clone(), version_of(alias)

        def over() -> None:
            with torch.no_grad(), unobserved():
                if version_of(alias) == version and differ(before, alias):  # a write that is meant counts there
                    packed.late = alias.clone()

        self.run.after_operation(over)

    def _let_go(self, size: int) -> None:
        self._kept -= size

    def _note(self, tensor: torch.Tensor, stack: Stack) -> Saved:
        saved = Saved(tensor, stack, self.run.tick())
        saved.foreign = saved.repacked = True
        self.run.remember(saved)
        self.run.after_operation(functools.partial(self.run.sample, saved))
        return saved

    # ---- unpacking

    def _unpack(self, theirs: Callable[[Any], torch.Tensor]) -> Callable[[Any], torch.Tensor]:
        def unpack(packed: Any) -> torch.Tensor:
            if not isinstance(packed, Packed):
                return theirs(packed)
            if self.run.turned and packed.given is not None:
                return packed.given[0 if self.run.policy.reference else 1]
            now = theirs(packed.inner)
            if self.run.passing is None or packed.saved is None:
                return now
            answers = [now]
            with self.run.ours:
                answers.append(self._compare(packed, packed.saved, now, theirs))
            return answers[-1]

        return unpack

    def _compare(
        self, packed: Packed, saved: Saved, now: torch.Tensor, theirs: Callable[[Any], torch.Tensor]
    ) -> torch.Tensor:
        with unobserved(), torch.no_grad():
            right: torch.Tensor | None
            write: LiveWrite | None
            if packed.region is not None:
                right, write = self._recomputed(packed.region, saved, now)
            elif packed.late is not None:
                right, write = packed.late, LiveWrite(saved.stack, self.run.tick(), "", "user", saved.version)
            else:
                right, write = self._as_packed(packed, theirs)
        self._remember_given(packed, now, now if right is None else right)
        if right is None or near(right, now):
            return now
        passing = self.run.passing
        assert passing is not None
        self.run.suspect(saved, passing.event, write)
        return right if self.run.policy.reference else now

    def _remember_given(self, packed: Packed, now: torch.Tensor, right: torch.Tensor) -> None:
        """For the second run of the node; a checkpoint gives its values only once."""
        node = current_node()
        if self._recent[0] is not node:
            for one in self._recent[1]:
                one.given = None
            self._recent = node, []
        self._recent[1].append(packed)
        packed.given = now, right

    def _recomputed(
        self, region: Region, saved: Saved, now: torch.Tensor
    ) -> tuple[torch.Tensor | None, LiveWrite | None]:
        right = saved.alias if saved.value is None else saved.value
        if saved.lost or right.shape != now.shape or right.dtype != now.dtype or near(right, now):
            return None, None
        writes = self.run.writes_since(saved)
        return right, writes[0] if writes else self.run.cause(region)

    def _as_packed(
        self, packed: Packed, theirs: Callable[[Any], torch.Tensor]
    ) -> tuple[torch.Tensor | None, LiveWrite | None]:
        """What the hooks would have given on the tensors as they were packed."""
        changed: list[tuple[Saved, LiveWrite | None]] = []
        for saved in packed.held:
            writes = self.run.writes_since(saved)
            if not saved.lost and self.run.changed(saved, writes):
                changed.append((saved, writes[0] if writes else None))
        if not changed:
            return None, None
        with ExitStack() as memory:
            for saved, _ in changed:
                memory.enter_context(saved.put_back())
            right = theirs(packed.inner).detach().clone()
        return right, changed[0][1]


def _tensors(packed: Any, depth: int = 2) -> Iterator[torch.Tensor]:
    """The tensors in what hooks have made."""
    if isinstance(packed, torch.Tensor):
        yield packed
    elif depth > 0:
        items: list[Any] = []
        if isinstance(packed, Mapping):
            items = list(packed.values())
        elif isinstance(packed, (list, tuple)):
            items = list(packed)
        elif hasattr(packed, "__dict__"):
            items = list(vars(packed).values())
        for item in items[:_ITEMS]:
            yield from _tensors(item, depth - 1)
