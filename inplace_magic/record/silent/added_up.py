"""Gradients that a step went by, and that the next backward adds to: ``zero_grad`` is missing.

Nothing is raised: each step goes by the sum of all gradients so far.

Proof: behind a step, nothing has written into the gradients of the parameters that are looked at, nor put others in their place,
until a backward added to them, and the same step went by the sums; after its first time, not less often than by others. Who adds
up the gradients of several backwards on purpose begins anew behind the step. A step is an optimizer's, or a line that writes
into ``w`` what is computed of ``w.grad``.
"""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

import torch

from ...source.location import user_stack
from ...storage import storage_key
from ...torch_private import unobserved
from .. import evidence
from ..observed import LiveWrite, Stack
from ..operations import arguments, tensors_in
from .aliases import DATA_SET, GRAD_GET, called_by_user
from .events import Call, Detector, Passing, Run
from .followed import Followed
from .gradients import GradientAt

_PARAMETERS = 4  # of one step that are looked at
_STEPS = 64  # places of steps, and optimizers, that are known
_SMALL = 1e-3  # of a sum
_OWN = 4  # steps by gradients of their own, behind which one is looked at no more

_Backward = tuple[evidence.Backward, Stack]


@dataclass
class _Step:
    """``used``: the gradients that it went by last, and what backwards have made of them, as long as nobody else touches them.
    ``sizes``: of these as a backward begins. ``added``: the first backward that has added to some, since the last step of any;
    ``last``: by whose sums a step went. ``others``: there has been another step since. ``own``, ``sums``: how often it went by
    gradients of their own, the first time among them, and by such sums.
    """

    stack: Stack
    used: list[GradientAt] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)
    added: _Backward | None = None
    last: _Backward | None = None
    others: bool = False
    own: int = 0
    sums: int = 0


class AddedUp(Detector):
    """Follows what steps went by."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._steps: dict[Hashable, _Step] = {}  # by the id of the optimizer, or by the line
        self._optimizers: dict[int, weakref.ref[torch.optim.Optimizer]] = {}
        self._begun: Stack = ()  # where the step under way stands
        self._read: dict[int, weakref.ref[torch.Tensor]] = {}  # by storage: leaves whose gradients a line has read
        self._values = Followed[int]()  # what is computed of these, by the same

    def ends(self) -> None:
        for step in self._steps.values():
            if step.last is not None and step.sums >= step.own:
                (event, stack), clock = step.last, self.run.tick()
                write = LiveWrite(stack, self.run.tick(), "backward", "user", 0, "added_up")
                self._note_proven(write, event, bound=step.stack, clock=clock)
        self._steps.clear()

    # ---- steps

    def calls(self, call: Call) -> None:
        """Those of a step by hand."""
        written = call.args[:1] if call.func == DATA_SET else call.written
        if not written or not (self._read or self._steps):
            return
        with unobserved():
            keys = {key for one in written if (key := storage_key(one)) is not None}
            of = self._values.of_tensors(arguments(call.args, call.kwargs))
            refs = [self._read.pop(key) for key in keys & self._read.keys() & of]
            stepped = [leaf for ref in refs if (leaf := ref()) is not None]
            if stepped and called_by_user():
                stack = user_stack(sys._getframe(1))
                self._stepped((stack, id(stepped[0])), stack, stepped)
            for step in (one for one in self._steps.values() if one.added is None):
                step.used = [one for one in step.used if one.key not in keys]  # through ``w.grad.data``, it may be

    def called(self, call: Call, result: object) -> None:
        of = self._values.of(call)
        if call.func == GRAD_GET and isinstance(result, torch.Tensor) and called_by_user():
            leaf = call.args[0]
            with unobserved():
                key = storage_key(leaf) if leaf.is_leaf else None
            if key is not None:
                self._read[key], of = weakref.ref(leaf), of | {key}
        if of:
            self._values.follow([*tensors_in(result), *call.written], of)

    def steps(self, optimizer: torch.optim.Optimizer) -> None:
        known = self._optimizers.get(id(optimizer))
        if known is None or known() is not optimizer:
            self._optimizers[id(optimizer)] = weakref.ref(optimizer)
            self._steps.pop(id(optimizer), None)
        self._begun = user_stack(sys._getframe(1))

    def step_ends(self, optimizer: torch.optim.Optimizer) -> None:
        """A closure that it was handed has run by now."""
        with unobserved():
            self._stepped(id(optimizer), self._begun, (p for group in optimizer.param_groups for p in group["params"]))

    def _stepped(self, key: Hashable, stack: Stack, parameters: Iterable[torch.Tensor]) -> None:
        if len(self._steps) >= _STEPS and key not in self._steps:
            return
        step = self._steps.setdefault(key, _Step(stack))
        for other in self._steps.values():
            other.others = other is not step
        if step.own >= _OWN and not step.sums:
            step.used = []
            return
        if step.added is not None and any(one.size for one in step.used):  # clipped, it may be
            step.sums, step.last = step.sums + 1, step.added
        else:
            step.own += 1
        found = (one for p in parameters if (one := GradientAt.of(p)) is not None)
        step.used, step.added = [*itertools.islice(found, _PARAMETERS)], None

    # ---- backwards

    def backward_begins(self, passing: Passing) -> None:
        self._values.forget_gone()
        if not passing.event.asked:
            with unobserved():
                for step in self._steps.values():
                    kept = [(one, size) for one in step.used if one.is_untouched and (size := one.size)]
                    step.used, step.sizes = [one for one, _ in kept], [size for _, size in kept]
                    step.added = step.added if kept else None

    def backward_ends(self, passing: Passing, result: object) -> None:
        if not passing.event.asked:
            with unobserved():
                for step in self._steps.values():
                    kept = [
                        (known, one, size)
                        for known, size in zip(step.used, step.sizes, strict=False)
                        if (one := GradientAt.of(known.parameter())) is not None
                    ]
                    # What is much smaller than that is as good as gone, as what a scaler has divided by its scale.
                    grew = any(not one.is_as(known) and size > _SMALL * one.size for known, one, size in kept)
                    if grew and (step.added is None or step.others):
                        step.added, step.others = (passing.event, self.run.here()), False
                    step.used = [one for _, one, _ in kept]
