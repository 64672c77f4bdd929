"""The stream of events that a recorded run is to a detector.

One recorder (stream.py) sees what happens: tensors saved, calls, writes, backwards. Each way in which a gradient can
go wrong without an error is a detector, one file each, which overrides the events that it needs and brings its own
proof that a gradient is wrong. What differs between a run that is only watched and a reference run is the policy.
An event that no detector overrides costs nothing.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from ...gradients.backward import graph_of
from ...source.sources import Sources
from ...torch_private import unobserved
from .. import evidence
from ..author import Author
from ..observed import LiveConflict, LiveWrite, Saved, Stack
from ..tracked_copies import TrackedCopies


@dataclass(frozen=True)
class Policy:
    """How a run is dealt with.

    ``reference``: every backward gets the values as they were saved, writes that a graph has not heard of become part
    of it, and the run continues past what torch refuses. Else nothing is changed: the run is only watched.
    ``every_line``: all that is saved is compared after each line, so that a write which no call shows has its line.
    """

    reference: bool
    every_line: bool = False


WATCHED = Policy(reference=False)
REFERENCE = Policy(reference=True, every_line=True)


@dataclass(frozen=True)
class Call:
    """A call of a torch function. ``written`` are the tensors that it is going to write."""

    func: Callable[..., Any]
    name: str
    args: Sequence[Any]
    kwargs: dict[str, Any]
    written: Sequence[torch.Tensor] = ()


@dataclass
class Passing:
    """A backward that is about to run. ``nodes`` walks over its graph once, when first asked.

    ``wanted``: the tensors whose gradients ``autograd.grad`` is asked for. ``given_up``: torch has refused it, in a rerun that
    goes on all the same, so that the gradients which it would have given are missing.
    """

    event: evidence.Backward
    roots: Sequence[torch.Tensor]
    wanted: Sequence[torch.Tensor] = ()
    given_up: bool = False
    handles: list[Any] = field(default_factory=list)  # of the hooks that are taken off when it is over
    _graph: tuple[list[torch.Tensor], int, set[Any]] | None = None

    @property
    def nodes(self) -> set[Any]:
        return self._walked()[2]

    @property
    def leaves(self) -> list[torch.Tensor]:
        return self._walked()[0]

    def _walked(self) -> tuple[list[torch.Tensor], int, set[Any]]:
        if self._graph is None:
            with unobserved():
                self._graph = graph_of(self.roots)
        return self._graph


@dataclass
class Applied:
    """A custom Function that has been applied. ``node`` is None where it made none. ``stack`` is the line of apply."""

    cls: Any
    node: Any
    inputs: Sequence[torch.Tensor]
    result: Any
    dirty: frozenset[int]  # ids of what it has marked
    stack: Stack


class Run(Protocol):
    """What detectors ask of the recorder."""

    policy: Policy
    sources: Sources
    passing: Passing | None  # the backward that is running
    turned: bool  # a node runs for the second time, and gets the other values
    open_question: bool  # something was seen that a reference run alone can judge
    packed_elsewhere: bool  # hooks of others have packed something
    curious: set[Detector]  # detectors that hear of every call
    counts: dict[str, int]
    ours: contextlib.AbstractContextManager[Any]  # around what is not the person's: what fails in it ends the watch

    @property
    def copies(self) -> TrackedCopies:
        """The tracked copies of a reference run."""

    def hook(self, ours: Callable[..., Any]) -> Callable[..., Any]:
        """A hook of ours as it is registered."""

    def tick(self) -> int:
        """The next moment of the run's clock."""

    def waiting(self, tensor: torch.Tensor) -> list[Saved]:
        """What is saved in the tensor's storage and still wanted."""

    def remember(self, saved: Saved) -> None:
        """From now on, writes into the value's memory are logged, and it is kept before the first one."""

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Puts something in place of an attribute until the run is over. To be asked in ``begins``."""

    def at_end(self, call: Callable[[], None]) -> None:
        """Calls something when the run is over, whatever may fail meanwhile. To be asked in ``begins``."""

    def is_ours(self, hooks: Any) -> bool:
        """Whether these hooks on saved tensors are the recorder's own."""

    def seeing(self) -> contextlib.AbstractContextManager[None]:
        """The recorder sees calls, also within a call that it is just looking at."""

    def author(self, frame: types.FrameType, written: Sequence[torch.Tensor]) -> Author:
        """Who runs a frame, and where it holds what it writes."""

    def block(self) -> Stack:
        """The user's innermost block without grad mode, while nothing within has switched it on again."""

    def cut_off(self, leaf: torch.Tensor) -> list[Any]:
        """The places (cuts.Place) where what is computed of a leaf lost its history, the likeliest first."""

    def here(self) -> Stack:
        """The user's frames, from the call that is being looked at outwards."""

    def about_to_write(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> list[torch.Tensor]:
        """Keeps what a call is going to overwrite, of what is wanted; that is what it gives back."""

    def wrote(self, name: str, stack: Stack, written: list[torch.Tensor]) -> None:
        """Logs it."""

    def keep_all(self, tensor: torch.Tensor) -> None:
        """Clones what is saved in the tensor's storage."""

    @property
    def samples(self) -> bool:
        """Whether what is saved for this backward is compared when it begins."""

    def after_operation(self, call: Callable[[], None]) -> None:
        """Calls something when the operation under way is over: some write what they have saved (rrelu its noise)."""

    def sample(self, saved: Saved) -> None:
        """Clones the value if those of this backward are compared when it begins."""

    def checkpoint_begins(self, stack: Stack) -> Any:
        """A forward begins that will be recomputed: its region."""

    def checkpoint_ends(self, region: Any) -> None:
        """It is over."""

    def cause(self, region: Any) -> LiveWrite:
        """Why a region gives something else when it is recomputed."""

    def cut(self, stack: Stack) -> None:
        """Nothing goes back through what has just run at this place."""

    def uncovered(self, kind: str, number: int = 1) -> None:
        """Counts what is not looked at."""

    def keep(self, saved: Saved) -> bool:
        """Clones a value, as far as the memory set aside for that goes."""

    def log(self, key: int, write: LiveWrite) -> None:
        """Notes a write into a storage."""

    def writes_since(self, saved: Saved) -> list[LiveWrite]:
        """The writes that have been logged for a value since it was saved."""

    def changed(self, saved: Saved, writes: list[LiveWrite]) -> bool:
        """Whether torch would read another value now than the one that was saved."""

    def changed_values(self) -> set[int]:
        """The ids of all values that are wanted still and are no longer what was saved."""

    def compare_later(self, saved: Saved) -> None:
        """Compares the value after each line, from now on."""

    def look_now(self, saved: Saved) -> None:
        """Compares a value that is compared after each line."""

    def line(self) -> None:
        """A line of the user's has run."""

    def others_run(self) -> bool:
        """Whether code of the user's runs in another thread, so that a line need not have written what has changed."""

    def suspect(self, saved: Saved, need: evidence.Backward, write: LiveWrite | None) -> None:
        """A backward reads a value that has changed, and nothing tells it."""

    def conflict(
        self,
        kind: evidence.Kind,
        saved: Saved,
        need: evidence.Backward,
        write: LiveWrite | None,
        node: Any = None,
    ) -> LiveConflict | None:
        """Notes what is verified; None if it is noted already."""


class Detector:
    """One way in which a gradient goes wrong without an error. Override the events that are needed."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def _note_proven(
        self,
        write: LiveWrite,
        need: evidence.Backward,
        bound: Stack = (),
        clock: int | None = None,
        value: torch.Tensor | None = None,
        kind: evidence.Kind = "silent",
    ) -> None:
        """Notes what is certain and has no saved value. ``bound``, ``clock``: what is reported as the place and the time of a
        save; ``value``: the tensor whose name is reported."""
        saved = Saved(torch.zeros(1), bound, self.run.tick() if clock is None else clock)
        conflict = self.run.conflict(kind, saved, need, write)
        if conflict is not None:
            conflict.certain, conflict.value = True, value

    def begins(self) -> None:
        """The run begins."""

    def ends(self) -> None:
        """The run is over, or no longer looked at."""

    def saved(self, saved: Saved, tensor: torch.Tensor) -> None:
        """Autograd has saved a tensor."""

    def calls(self, call: Call) -> None:
        """A call that may write, or that shares memory, is about to be made, outside of a backward; every call, while
        the detector is in ``run.curious``."""

    def called(self, call: Call, result: Any) -> None:
        """The same call has been made."""

    def calls_in_backward(self, call: Call) -> None:
        """A call that writes is about to be made by code that a backward runs; every call, as above."""

    def called_in_backward(self, call: Call, result: Any) -> None:
        """The same call has been made."""

    def logs(self, key: int, write: LiveWrite) -> None:
        """A write into a storage has been noted."""

    def applies(self, cls: Any, args: Sequence[Any], inputs: Sequence[torch.Tensor]) -> None:
        """A custom Function is about to be applied; ``inputs`` are those of its arguments that require grad."""

    def applied(self, applied: Applied) -> None:
        """It has been."""

    def line(self) -> None:
        """A line of the user's has run."""

    def backward_begins(self, passing: Passing) -> None:
        """A backward is about to run."""

    def backward_within(self, roots: Sequence[torch.Tensor]) -> None:
        """Code that a backward runs is about to run one of its own."""

    def asked(self, saved: Saved, need: evidence.Backward) -> None:
        """A backward asks for a value that may have changed."""

    def backward_ends(self, passing: Passing, result: Any) -> None:
        """A backward is over; ``result`` is what ``grad`` gave, or None."""

    def steps(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer is about to step."""

    def step_ends(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer has stepped; a closure that it was handed has run."""


EVENTS = tuple(name for name, value in vars(Detector).items() if not name.startswith("_") and callable(value))
