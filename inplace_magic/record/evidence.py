"""What a replay saw, as frozen plain records that may leave the sandbox: no tensor, no frame."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..outcome.kept import Outcome
from ..source.location import SourceRange

# What is called a write.
How = Literal[
    "written",  # a write
    "recomputed",  # the line whose forward gives something else when it runs again
    "untrained",  # the line where the path to all parameters of an optimizer was cut
    "flat",  # the line of which the derivative is zero, so that the parameters of an optimizer get nothing else
    "cleared",  # the line that sets the gradients to None by which an optimizer was to step
    "unregistered",  # the step of an optimizer that was to hold what a module keeps in a plain list
    "replaced",  # the step of an optimizer that was to hold what has taken the place of its parameters
    "unreached",  # the line where what is computed of a leaf was cut off, whose gradient is read and is None
    "as_data",  # the line that reads what an optimizer steps without its history
    "of_result",  # the line that looks for the gradient of what was computed of a leaf that nobody holds
    "as_term",  # the line that copies a term of a loss without its history
    "constant",  # the line that computes a term of a loss without its history, by other means than a copy
    "added_up",  # the backward that adds to gradients by which there was a step before
    "discarded",  # the line that clears gradients which nothing has used
    "carried",  # the line that writes, iteration after iteration, into what has the history of those before
    "shared",  # a write into one gradient that stands for two
    "expanded",  # a write into an element of a gradient whose elements share memory
    "aliased",  # a write into what is read later by another name
    "overlaps",  # a write that overwrites what it has still to read
]
# ``detached``: what an optimizer steps is detached on its way to a loss, which may be meant so.
Kind = Literal["modified", "second_backward", "silent", "detached", "refused"]


@dataclass(frozen=True)
class Event:
    """Something that happened at a place. ``stack`` is the user's frames, innermost first; ``clock`` orders events."""

    clock: int
    stack: tuple[SourceRange, ...]

    @property
    def spot(self) -> SourceRange | None:
        return self.stack[0] if self.stack else None


@dataclass(frozen=True)
class Save(Event):
    """autograd kept a tensor for a backward formula. ``node`` is the failing node's name where it is known."""

    node: str | None = None
    version: int = 0
    shape: tuple[int, ...] = ()
    name: str | None = None


@dataclass(frozen=True)
class Write(Event):
    """A tensor's memory (or its version counter) changed.

    ``origin`` is ``optim`` when an optimizer's step wrote, ``nn`` when one of torch's modules did, else ``user``.
    ``module`` is the path of that module over the user's names, ``operation`` torch's name of the operation.
    ``bumped`` is False for a write that the version counter did not see. ``leaf``: a refused write hit a leaf itself;
    ``of_leaf``: a leaf that requires grad, or any view of one; ``late``: a view that was made before its base was written,
    which torch takes for a leaf; ``parameter``: it is an nn.Parameter; ``fed``: it had a
    gradient by then; ``of_graph``: what requires grad is written into it; ``stepped``: that is not so, and an optimizer had
    stepped it; ``aliases``: the names of that very leaf where it was written. ``held``: the paths over the names of the line's
    function that led to that memory, so that an item of a list or dict is told from a part of a tensor. ``handed``: it hit
    a gradient that backward had handed to the code that wrote. ``by_list``: by one call that writes many tensors, as an
    optimizer's step does with ``foreach`` or ``fused``.
    """

    operation: str = ""
    origin: str = "user"
    name: str | None = None
    module: str | None = None
    version: int = 0
    bumped: bool = True
    leaf: bool = False
    of_leaf: bool = False
    late: bool = False
    parameter: bool = False
    fed: bool = False
    of_graph: bool = False
    stepped: bool = False
    aliases: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    handed: bool = False
    by_list: bool = False
    how: How = "written"


@dataclass(frozen=True)
class Backward(Event):
    """A call of backward or grad. ``index`` counts them from 0 within a replay.

    ``asked``: by ``autograd.grad``, which hands its gradients to whoever asks and adds none to ``.grad``. ``limited``: to
    some inputs, so that it goes through no more of the graph than what leads to these.
    """

    index: int = 0
    retained: bool = False
    root: str | None = None
    asked: bool = False
    limited: bool = False


@dataclass(frozen=True, order=True)
class Holder:
    """A place that held a history: a name, an attribute, an item, seen from a ``scope``.

    ``scope`` is the qualified name of the function whose frame or closure has the name, ``<module>`` for a cell, or
    ``class C`` where ``path`` is the attribute of an object of that class. ``shape`` is ``Tensor``,
    ``tuple[Tensor]``, ``dict[mixed]``, ``tuple(Tensor|-)`` and so on (holders.shape_of).
    """

    scope: str
    path: str
    shape: str

    @property
    def of_object(self) -> bool:
        """Whether it is an attribute, of whatever name its object has where it is read."""
        return self.scope.startswith("class ")

    def is_called(self, text: str) -> bool:
        """Whether some code calls it so: ``self.h``, or ``agent.h``, where an object has ``h``."""
        return self.path == (text.partition(".")[2] if self.of_object else text)


@dataclass(frozen=True)
class Edge:
    """A value that passes an event: the call that ``used`` it, the one that ``made`` it, and who held it in between.

    ``again``: the same call took part in that graph with other values, too. ``root``: it is what backward was called on.
    ``term``: it is only added to what backward was called on, so that nobody else's gradient depends on it. ``alone``: such a
    term is computed of it and nothing else that has a history, and it leads to a leaf that is stepped. ``over``: it was used
    after the event.
    """

    used: tuple[SourceRange, ...]
    made: tuple[SourceRange, ...]
    holders: tuple[Holder, ...]
    again: bool = False
    root: bool = False
    term: bool = False
    alone: bool = False
    over: bool = False


@dataclass(frozen=True)
class Crossing:
    """How the graph of the needing backward comes by what was overwritten or freed.

    ``over``: edges from values created before the event to calls after it. ``shared``: edges from that part of the graph
    into the part that only the earlier backward went through. ``stale``: the calls that created what lies between the
    stale node and ``over``, the oldest first. ``untrained``: edges into the part of the graph from which no leaf is
    stepped before the next backward. ``partly``: paths of containers some of whose items that backward leaves out.
    """

    over: tuple[Edge, ...] = ()
    shared: tuple[Edge, ...] = ()
    stale: tuple[tuple[SourceRange, ...], ...] = ()
    untrained: tuple[Edge, ...] = ()
    partly: frozenset[str] = frozenset()


Placing = Callable[[tuple[tuple[types.CodeType, int], ...]], tuple[SourceRange, ...]]


@dataclass(frozen=True)
class RecordedConflict:
    """A saved tensor met a backward that could not, or should not, have used it; or an operation was refused.

    ``known`` is False when the tensor had been saved before the replay began, so that its places are missing.
    ``certain``: it was verified as it happened, in a way that a comparison with a reference run does not show.
    ``freed`` is the backward that let the graph go (second_backward only). ``effective`` is False where the write left
    every value as it was, as one does that has been made before.
    """

    kind: Kind
    save: Save | None = None
    write: Write | None = None
    need: Backward | None = None
    freed: Backward | None = None
    family: str | None = None
    message: str = ""
    known: bool = True
    certain: bool = False
    crossing: Crossing | None = None
    effective: bool = True

    @property
    def cause(self) -> Write | Backward | None:
        """By what the tensor was lost: the write, or the backward that freed the graph."""
        return self.freed if self.kind == "second_backward" else self.write

    @property
    def frees_and_needs_in_one_call(self) -> bool:
        """Whether one call freed the graph and needs it again, where a line may have two."""
        return self.freed is not None and self.need is not None and self.freed.stack[:1] == self.need.stack[:1]


@dataclass(frozen=True)
class LeafGradient:
    """What one backward added to one leaf: a digest that is linear in the gradient, and its length.

    ``shape`` is the leaf's; ``digest`` is None where no gradient arrived.
    """

    leaf: str
    shape: tuple[int, ...]
    digest: tuple[float, ...] | None


@dataclass(frozen=True)
class BackwardPass:
    """One backward of a replay, with the gradients that it gave and the size of the graph that it walked.

    ``steps`` are the optimizer steps before the next backward, each with the gradients that it used. ``held`` tells
    which names held a graph at that moment (holding.py). ``value`` is a digest of what backward was called on.
    ``looked`` is False for one of many passes far from any conflict, of which no more is known than that it took place;
    a step after such a pass has empty digests.
    """

    backward: Backward
    gradients: tuple[LeafGradient, ...]
    nodes: int
    failed: bool = False
    steps: tuple[tuple[LeafGradient, ...], ...] = ()
    held: Mapping[str, Mapping[str, str]] = field(default_factory=dict, compare=False)
    value: tuple[float, ...] | None = field(default=None, compare=False)
    looked: bool = True

    @property
    def leaves(self) -> frozenset[str]:
        """The names of the leaves that it went to."""
        return frozenset(g.leaf for g in self.gradients)

    @property
    def stepped(self) -> frozenset[str]:
        """The names of the leaves that the steps after it used."""
        return frozenset(g.leaf for step in self.steps for g in step)


@dataclass(frozen=True)
class Evidence:
    """All that a replay brought out.

    ``cells`` are the cells that ran, ``fresh`` tells whether they ran from an empty namespace. ``error`` is the text
    of the exception that ended the replay, ``error_family`` its family. ``carriers`` are paths to tensors of the
    session that still hold the graph of an earlier run. ``inplace_modules`` are (path, type's name) of the modules
    that work in place, ``inference_tensors`` the paths of tensors made in inference mode. ``first`` is the pass at which
    the first conflict was met, ``far`` the number of passes after which a long run ends. ``early``: this was told as soon
    as that conflict was met, and what the program does next is not known yet. ``outcome`` is what the run left behind,
    None while it lasts. ``again`` is the family of the error with which the last cell failed when it was run a second
    time. ``work`` is how much was computed, in units that do not depend on the machine (Recorder.work). ``stumbled`` are
    the earlier cells that failed, and did not end the run. ``of_gradients`` are the passes that went back from what was
    computed of gradients without a graph (gradient_values.py).
    """

    cells: tuple[int, ...]
    fresh: bool
    clashes: tuple[RecordedConflict, ...] = ()
    passes: tuple[BackwardPass, ...] = ()
    error: str | None = None
    error_family: str | None = None
    error_stack: tuple[SourceRange, ...] = ()
    carriers: tuple[str, ...] = ()
    inplace_modules: tuple[tuple[str, str], ...] = ()
    inference_tensors: tuple[str, ...] = ()
    seconds: float = 0.0
    finished: bool = True
    first: int | None = None
    far: int = 0
    early: bool = False
    outcome: Outcome | None = None
    again: str | None = None
    work: int = 0
    stumbled: tuple[int, ...] = ()
    of_gradients: frozenset[int] = frozenset()
