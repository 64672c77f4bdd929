"""Terms of a loss that are computed of values which have lost their history: they train nothing.

    balance = torch.tensor([block.loss for block in blocks]).mean()
    edges = gradient_of(logits.argmax(1).float())
    with torch.no_grad():
        speaker = encoder(spectrogram(wave)).mean()
    penalty = net.weight.square().sum().item()
    (task + 0.1 * balance + edges + speaker + 0.1 * penalty).backward()

The last two may be meant so, as is what is detached, of which nothing is said.

Proof: what was made of such a value is only added to what goes back, the sum on its way to the root only scaled and added to,
and nothing else that has a history is computed of it, so that no gradient would be another one without it. Of a number that is all
that Python adds, or as much of it as a number says that the code knows.
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass
from typing import Any

import torch

from ...source.location import user_frames, user_stack
from ...torch_private import sequence_number, unobserved
from .. import evidence
from ..observed import LiveWrite, Stack
from ..operations import arguments, tensors_in
from .aliases import DATA_GET, GRAD_GET, NUMBERS, called_by_user
from .events import Call, Detector, Passing, Run
from .followed import Followed, without_history
from .nodes import node_number, node_of, reached

_ADDING = frozenset({"add", "add_", "sub", "sub_", "subtract", "rsub", "__radd__", "__rsub__", "__iadd__", "__isub__"})
_SUMS = frozenset({"AddBackward0", "SubBackward0", "RsubBackward1"})
_SCALES = frozenset({"MulBackward0", "DivBackward0", "NegBackward0"})  # of one value with a history
_BACKWARDS, _CALLS = 3, 4_096  # until which, whichever comes first, each call is heard
_LOOKED_AT = (*NUMBERS, GRAD_GET)
_KEPT = 256  # sums that have not gone back
_ITEMS = 64  # of a list, that are looked at
_NUMBERS = 64  # that were read last
_DIGITS = 4
_MOST = 1e100  # of a factor: there are integers that are no floats


@dataclass(frozen=True)
class _Cut:
    """Where values lost their history: ``how``, and whether that ``may`` be meant."""

    stack: Stack
    how: evidence.How
    may: bool = False


# What is detached, as it says. Where something is added to that, it may be a straight-through value.
_DETACHED = _Cut((), "constant", may=True)


class ConstantTerms(Detector):
    """Follows what is computed of such values."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._values = Followed[_Cut](discrete=True)
        self._sums: dict[int, frozenset[_Cut]] = {}  # by the number of the node that adds the value to something
        self._elsewhere: set[_Cut] = set()  # of which something else is computed
        self._told: set[_Cut] = set()
        self._copied_now = frozenset[_Cut]()
        self._numbers: dict[
            float, tuple[_Cut, int]
        ] = {}  # that were read of what has a history, by the number of its node
        self._backwards = self._calls = 0
        self._stepping = False

    def begins(self) -> None:
        self.run.curious.add(self)

    def calls(self, call: Call) -> None:
        self._copied_now = frozenset()
        if call.func is torch.tensor and torch.is_grad_enabled() and called_by_user():
            with unobserved():
                copied = _has_history([*call.args[:1], call.kwargs.get("data")])
            cut = _Cut(user_stack(sys._getframe(1)) if copied else (), "as_term")
            if copied and cut not in self._told | self._elsewhere:
                self._copied_now = frozenset({cut})
                self.run.curious.add(self)

    def called(self, call: Call, result: Any) -> None:
        self._calls += 1
        if self._calls == _CALLS:
            self._rest()
        early = self._backwards < _BACKWARDS and self._calls < _CALLS
        if early and call.func in NUMBERS and isinstance(result, float) and called_by_user():
            self._reads(call.args[0], result, user_stack(sys._getframe(1)))
        within_step = self._stepping and not torch.is_grad_enabled()  # a closure runs with it
        if within_step or not (early or self._copied_now or self._values):
            return
        of = self._copied_now | self._values.of(call)
        if early and not self._copied_now and call.func not in _LOOKED_AT:
            of |= self._lost(call, result)
        if early and call.name in _ADDING and self._numbers:
            of |= self._of_number(call)
        of -= self._told | self._elsewhere
        nodes = self._values.follow([*tensors_in(result), *call.written], of) if of else []
        if nodes and (call.name not in _ADDING or _DETACHED in of):
            with unobserved():
                sums = map(node_number, arguments(call.args, call.kwargs)) if call.name in _ADDING else ()
                self._elsewhere |= of.union(*(self._sums.get(number, frozenset()) for number in sums)) - {_DETACHED}
        elif nodes:
            for number in [*self._sums][: max(0, len(self._sums) + len(nodes) - _KEPT)]:
                self._elsewhere |= self._sums.pop(number)  # nobody will know what becomes of them
            with unobserved():
                self._sums |= {sequence_number(node): of for node in nodes}

    def _reads(self, tensor: torch.Tensor, value: float, stack: Stack) -> None:
        """A number that is read. One of few digits may be any other one."""
        with unobserved():
            has_history, number = tensor.requires_grad or bool(self._values.of_tensors([tensor])), node_number(tensor)
        if has_history and stack and value != round(value, _DIGITS):
            self._numbers = dict([*self._numbers.items()][1 - _NUMBERS :]) | {
                value: (_Cut(stack, "constant", may=True), number)
            }

    def _of_number(self, call: Call) -> frozenset[_Cut]:
        """The place where the number that a call adds was read: it is that, or that times a number of the code, or by one."""
        given = next((one for one in call.args if isinstance(one, float)), None)
        frame = next(user_frames(sys._getframe(1)), None)
        if given is None or frame is None:
            return frozenset()
        known = [*frame.f_code.co_consts, *frame.f_locals.values(), *map(frame.f_globals.get, frame.f_code.co_names)]
        factors = [1.0, *(one for one in known if isinstance(one, (int, float)) and one and abs(one) < _MOST)]
        with unobserved():  # ``x - x.item()`` is meant to be zero
            beside = {node_number(one) for one in arguments(call.args, call.kwargs)} - {0}
        cuts = (
            cut
            for value, (cut, number) in self._numbers.items()
            if number not in beside and any(given in (one * value, value / one) for one in factors)
        )
        return frozenset(itertools.islice(cuts, 1))

    def _lost(self, call: Call, result: Any) -> frozenset[_Cut]:
        """The place of a call that gives values without their history."""
        with unobserved():
            lost = without_history(call, result)
        if not lost or call.name == "detach" or call.func == DATA_GET:
            return frozenset({_DETACHED} if lost else ())
        block = self.run.block()
        stack = block or user_stack(sys._getframe(2))
        return frozenset({_Cut(stack, "constant", not torch.is_grad_enabled())} if stack else ())

    def steps(self, optimizer: torch.optim.Optimizer) -> None:
        self._stepping = True

    def step_ends(self, optimizer: torch.optim.Optimizer) -> None:
        self._stepping = False

    def backward_begins(self, passing: Passing) -> None:
        if self._sums:
            with unobserved():
                self._look(passing)
                gone = {sequence_number(node) for node in passing.nodes}
            self._sums = {number: cuts for number, cuts in self._sums.items() if number not in gone}
        self._backwards += 1
        self._values.forget_gone()
        if self._backwards == _BACKWARDS:
            self._rest()
        elif self._backwards > _BACKWARDS and not self._sums and not self._values:
            self.run.curious.discard(self)

    def _rest(self) -> None:
        """From now on a call is heard only for what is made by ``torch.tensor``."""
        self._values.clear()
        self._sums.clear()
        self._numbers.clear()
        if not self._copied_now:
            self.run.curious.discard(self)

    def _look(self, passing: Passing) -> None:
        linear = reached(map(node_of, passing.roots), _adds_or_scales)
        sums = {node for node in linear if sequence_number(node) in self._sums}
        used = [into for node in passing.nodes - linear for into, _ in node.next_functions] if sums else []
        beside = {
            cut for node in reached(used, linear.__contains__) for cut in self._sums.get(sequence_number(node), ())
        }
        beside |= {cut for node in passing.nodes - linear for cut in self._sums.get(sequence_number(node), ())}
        added = frozenset[_Cut]().union(*(self._sums[sequence_number(node)] for node in sums))
        for cut in added - beside - self._elsewhere - self._told:
            self._told.add(cut)
            write = LiveWrite(cut.stack, self.run.tick(), "tensor", "user", 0, cut.how)
            self._note_proven(write, passing.event, kind="detached" if cut.may else "silent")


def _has_history(data: Any) -> bool:
    """Whether there is a tensor with a history in what becomes a new one, at whatever depth."""
    if isinstance(data, (list, tuple)):
        return any(map(_has_history, data[:_ITEMS]))
    return isinstance(data, torch.Tensor) and data.requires_grad


def _adds_or_scales(node: Any) -> bool:
    """Whether a node adds values, or scales one."""
    into = [one is not None for one, _ in node.next_functions]
    return node.name() in _SUMS or (node.name() in _SCALES and into[:1] == [True] and sum(into) == 1)
