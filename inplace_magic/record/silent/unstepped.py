"""Parameters that get gradients and that no optimizer steps, although somebody meant one to: they are in a plain list of a module,
which ``parameters()`` passes over, or have taken the place of others since the optimizer was made.

Nothing is raised: the model trains without them.

Proof: a backward has given them gradients, and an optimizer has stepped twice without them, as has every other one that has stepped,
nor does one hold them that a name leads to. It steps other parameters of the module whose list, tuple or dict holds them; or some
that never get a gradient and that no name leads to any more, beside others of the module that has these. Who leaves parts of a
model out of an optimizer does neither.
"""

from __future__ import annotations

import re
import sys
import types
import weakref
from collections.abc import Iterator, Sequence

import torch

from ...session.user_objects import walk
from ...source.location import user_frames, user_stack
from ...torch_private import unobserved
from .. import evidence
from ..observed import LiveWrite
from .events import Detector, Passing, Run

_PASSES = 8  # whose leaves are known
_STEPS = 64  # of all optimizers, behind which no more is looked for
_ATTRIBUTE = re.compile(r"(\w+)(?:\[[^]]*\])+(\..*)?")  # ``layers[0].weight``, ``weights[1]``


class Unstepped(Detector):
    """Knows what the first backwards have reached, and what optimizers step."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._reached: dict[int, weakref.ref[torch.Tensor]] = {}
        self._stepped: dict[int, weakref.ref[torch.Tensor]] = {}
        self._optimizers: dict[int, int] = {}  # how often each has stepped, by id
        self._last: evidence.Backward | None = None
        self._passes = 0
        self._done = False

    def backward_begins(self, passing: Passing) -> None:
        if self._done or passing.event.asked:
            return
        self._passes += 1
        self._last = passing.event
        if self._passes <= _PASSES:
            leaves = (leaf for leaf in passing.leaves if isinstance(leaf, torch.nn.Parameter))
            self._reached |= {id(leaf): weakref.ref(leaf) for leaf in leaves}

    def steps(self, optimizer: torch.optim.Optimizer) -> None:
        if self._done or self._last is None:
            return
        count = self._optimizers[id(optimizer)] = self._optimizers.get(id(optimizer), 0) + 1
        held = [p for group in optimizer.param_groups for p in group["params"]]
        self._stepped |= {id(p): weakref.ref(p) for p in held}
        self._done = sum(self._optimizers.values()) >= _STEPS
        if count != 2:
            return
        with unobserved():
            reached = (leaf for ref in self._reached.values() if (leaf := ref()) is not None)
            left = [leaf for leaf in reached if leaf.grad is not None and not self._is_stepped(leaf)]
            if left and any(p.grad is not None for p in held):
                found = next(_missed(held, left, sys._getframe(1)), None)
                if found is not None:
                    leaf, how, place = found
                    write = LiveWrite(user_stack(sys._getframe(1)), self.run.tick(), "missed", "user", 0, how)
                    write.held = place
                    self._note_proven(write, self._last, value=leaf)

    def _is_stepped(self, leaf: torch.Tensor) -> bool:
        known = self._stepped.get(id(leaf))
        return known is not None and known() is leaf


def _missed(
    held: Sequence[torch.Tensor], left: Sequence[torch.Tensor], frame: types.FrameType | None
) -> Iterator[tuple[torch.Tensor, evidence.How, tuple[str, ...]]]:
    """Which of some parameters that are ``left`` out of an optimizer it was to hold, in what way it comes not to, and the module, or
    its attribute and what a list there has, that holds them.
    """
    modules, paths, optimizers = list[tuple[str, torch.nn.Module]](), dict[int, str](), dict[str, set[int]]()
    for one in user_frames(frame):
        for path, value in walk(one.f_locals, unnamed=True):
            if isinstance(value, torch.nn.Module):
                modules.append((path, value))
            elif isinstance(value, torch.optim.Optimizer):
                optimizers[f"{path}."] = {id(p) for group in value.param_groups for p in group["params"]}
            elif isinstance(value, torch.Tensor) and not path.startswith(tuple(optimizers)):
                paths.setdefault(id(value), path)
    stepped = {*map(id, held)}
    owned = [(path, {*map(id, module.parameters())}) for path, module in modules]
    known = {*paths}.union(*(own for _, own in owned))
    of_others = set[int]().union(*optimizers.values())  # which may step later
    gone = any(p.requires_grad and p.grad is None and id(p) not in known for p in held)
    for path, own in owned:
        for leaf in (one for one in left if id(one) not in of_others) if own & stepped else ():
            inner = _ATTRIBUTE.fullmatch(paths.get(id(leaf), "").removeprefix(f"{path}."))
            if id(leaf) in own and gone:
                yield leaf, "replaced", (path,)
            elif id(leaf) not in own and inner is not None and paths[id(leaf)].startswith(f"{path}."):
                yield leaf, "unregistered", (f"{path}.{inner[1]}", "Module" if inner[2] else "Parameter")
