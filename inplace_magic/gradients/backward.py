"""Gradients as a replay sees them: a digest of what each backward adds to each leaf.

A digest is linear in the gradient (sampled elements, and sums over stretches), so what a backward added is the
difference of the digests before and after it, and no gradient has to be kept.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.autograd.graph import GradientEdge
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ..record.evidence import Backward, BackwardPass, LeafGradient
from ..record.graph_holders import Held, held
from ..record.stand_in import StandIn
from ..source.location import SourceRange, user_stack
from ..source.sources import Sources
from ..storage import shape_of
from ..torch_private import unobserved, version_of
from .digest import digest
from .inert import zeroed

_SAMPLES = 64
_SUMS = 32
_WALK_LIMIT = 20_000
_SMALL = 16_384  # elements of a gradient that is kept for a moment instead of its digest
CLOSELY = 12  # passes that are looked at closely from the first one on, and again from the first conflict on
_OF_PLACE, _PLACES = 6, 12  # those from one place, however late it comes; of so many places


_Call = Callable[[bool], Any]  # a backward of the person's; told whether its graph is to be retained whatever they said
# The event, roots, leaves, call, and the tensors whose gradients ``autograd.grad`` is asked for.
_Around = Callable[[Backward, Sequence[torch.Tensor], Sequence[torch.Tensor], _Call, Sequence[torch.Tensor]], Any]
_Step = list[tuple[torch.Tensor, tuple[float, ...] | None]]  # what an optimizer used


class Stop(BaseException):
    """Raised inside a replay once it has gone far enough past the failure."""


def graph_of(roots: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], int, set[Any]]:
    """The leaves that a backward from ``roots`` can reach, the number of nodes on the way, and the nodes."""
    seen: set[Any] = set()
    leaves: dict[int, torch.Tensor] = {}
    todo: list[Any] = []
    for root in roots:
        if root.grad_fn is not None:
            todo.append(root.grad_fn)
        elif root.requires_grad:
            leaves[id(root)] = root
    while todo and len(seen) < _WALK_LIMIT:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        edges = node.next_functions
        if edges:
            todo += [parent for parent, _ in edges if parent is not None]
        elif isinstance(leaf := getattr(node, "variable", None), torch.Tensor):
            leaves[id(leaf)] = leaf
    return list(leaves.values()), len(seen), seen


@dataclass
class _LivePass:
    backward: Backward
    leaves: list[torch.Tensor]
    gains: list[tuple[float, ...] | None]
    nodes: int
    failed: bool
    graph: set[Any] = field(default_factory=set)
    steps: list[_Step] = field(default_factory=list)
    held: Held = field(default_factory=dict)
    value: tuple[float, ...] | None = None
    looked: bool = True


class _Before:
    """What a leaf's gradient was before a backward; a small one is kept, its digest is made only if it is asked for."""

    def __init__(self, gradient: torch.Tensor, now: bool) -> None:
        small = not now and gradient.layout == torch.strided and gradient.numel() <= _SMALL
        self._gradient = gradient.detach().clone() if small else None
        self._digest = None if small else digest(gradient)

    def digest(self) -> tuple[float, ...] | None:
        return digest(self._gradient) if self._gradient is not None else self._digest


@dataclass
class GradientTrace:
    """Listens to ``backward``, ``grad`` and optimizers while a replay runs. It changes nothing in how autograd works.

    ``around`` may wrap the real call (the recorder does); it gets the leaves as well where the graph is looked at.
    ``enough`` is asked after each pass whether to stop; where optimizers step, the run is ended when the next one is
    about to, so that the gradients it would use are known.
    ``conflict`` gives the pass of the first conflict, as soon as it is known: digests and walks over graphs cost more
    than many a training step, so only some passes at the beginning and some from the first conflict on are looked at.
    ``gone_on`` is called once after each pass, with their number, when the next one begins: by then all steps in between
    are known; ``stepped`` with the same number when an optimizer steps. ``shielded`` is what a watch puts around all of this.
    """

    sources: Sources
    around: _Around | None = None
    enough: Callable[[int, Backward], bool] = lambda done, backward: False
    gone_on: Callable[[int], None] = lambda done: None
    stepped: Callable[[int], None] = lambda done: None
    digests: bool = True  # False: only who ran backward and where, at no cost
    graphs: bool = True  # False: the graphs are not looked at either
    conflict: Callable[[], int | None] = lambda: None
    tick: Callable[[], int] | None = None  # the recorder's clock, by which a backward is ordered among its events
    shielded: Callable[[_Call, Callable[[_Call], Any], bool], Any] = lambda theirs, ours, retain: ours(theirs)
    caught: Callable[[BaseException, tuple[SourceRange, ...]], bool] = lambda error, stack: (
        False
    )  # by the program itself
    inert: bool = False  # gradients become zero once they have been looked at (inert.py)
    _latest: dict[int, tuple[tuple[int, int], tuple[float, ...] | None]] = field(default_factory=dict)
    _leaves: dict[int, torch.Tensor] = field(default_factory=dict)  # all that were ever reached
    _unlooked: WeakKeyDictionary[torch.optim.Optimizer, _Step] = field(default_factory=WeakKeyDictionary)
    _passes: list[_LivePass] = field(default_factory=list)
    _depth: int = 0
    _times: Counter[tuple[SourceRange, ...]] = field(default_factory=Counter)  # of the passes, by place
    _early: set[int] = field(default_factory=set)
    _left: int = 0  # passes that the program has gone on from
    _stepped: bool = False
    _ending: bool = False

    def listening(self) -> _Ears:
        """Puts our ears on ``torch.autograd.backward``, ``grad`` and the method, and takes them off again."""
        return _Ears(self)

    def _step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """A moved step may find other gradients than it was meant to use."""
        if not self._passes or not self.digests:
            return
        self._stepped = True
        with unobserved():
            self._passes[-1].steps.append(self._used(optimizer, self._passes[-1].looked))
            if self._ending:
                raise Stop
            self.stepped(len(self._passes))

    def _used(self, optimizer: torch.optim.Optimizer, looked: bool) -> _Step:
        if looked:
            return [(p, self._digest_of(p)) for group in optimizer.param_groups for p in group["params"]]
        size = sum(len(group["params"]) for group in optimizer.param_groups)
        known = self._unlooked.get(optimizer)
        if known is None or len(known) != size:  # one list for all of them: there may be a great many
            known = self._unlooked[optimizer] = [(p, ()) for group in optimizer.param_groups for p in group["params"]]
        return known

    def _go_on(self) -> None:
        if self._ending:
            raise Stop
        if self._left < len(self._passes):
            self._left = len(self._passes)
            self.gone_on(self._left)

    def _digest_of(self, leaf: torch.Tensor) -> tuple[float, ...] | None:
        """The digest of a leaf's gradient; the one from the end of the backward, if it is that gradient still."""
        gradient = leaf.grad
        if gradient is None or gradient.layout != torch.strided:
            return digest(gradient)
        now = (gradient.data_ptr(), version_of(gradient))
        known = self._latest.get(id(leaf))
        if known is None or known[0] != now or now[1] < 0:
            known = self._latest[id(leaf)] = (now, digest(gradient))
        return known[1]

    @property
    def done(self) -> int:
        """How many passes there have been."""
        return len(self._passes)

    def early(self, index: int) -> bool:
        """Whether a pass is one of the first, of the run or of those that the same line runs for the same callers."""
        return index < CLOSELY or index in self._early

    def _comes_from(self, place: tuple[SourceRange, ...], index: int) -> None:
        """What goes wrong in a loop begins with it, however many passes of other loops came before."""
        if place in self._times or len(self._times) < _PLACES:
            self._times[place] += 1
            if self._times[place] <= _OF_PLACE:
                self._early.add(index)

    def closely(self, index: int) -> bool:
        """Whether a pass is looked at closely."""
        if self.early(index):
            return True
        first = self.conflict()
        return first is not None and first <= index < first + CLOSELY

    def _watch(  # noqa: C901 - what is noted before, around and after one call, in the order in which it happens
        self,
        roots: list[torch.Tensor],
        retained: bool,
        call: Callable[[bool], Any],
        wanted: list[torch.Tensor] | None,
        tracked: bool,
        limited: bool,
    ) -> Any:
        if self._depth:  # a backward inside a backward (checkpoint) belongs to the outer one
            return call(False)
        stack = tuple(self.sources.spot(code, lasti) for code, lasti in user_stack(sys._getframe(2)))
        index = len(self._passes)
        self._comes_from(stack, index)
        clock = self.tick() if self.tick else index
        asked = wanted is not None
        event = Backward(clock, stack, index=index, retained=retained, asked=asked, limited=limited)
        if self._passes:
            self._passes[-1].graph.clear()  # only the last pass's is asked for; it keeps nodes alive
        live = _LivePass(event, [], [], 0, failed=True)
        looked = self.closely(index) or not self.digests or self.inert
        before: dict[int, _Before] = {}
        with unobserved():
            self._go_on()
            if looked:
                self._walk(live, roots)
            if wanted is None and self.digests:
                # Where a pass is first looked at because of a conflict in it, its leaves are known from earlier ones.
                leaves = live.leaves if looked else self._leaves.values() if self.conflict() is None else ()
                before = {id(leaf): _Before(leaf.grad, looked) for leaf in leaves if leaf.grad is not None}
            if self.digests and looked and self.around is not None and self.early(index):
                live.held = held(sys._getframe(2))
        self._passes.append(live)
        self._depth += 1
        try:
            if self.around is None:
                result = call(False)
                live.failed = False
            else:
                result, live.failed = self.around(event, roots, live.leaves, call, wanted or ())
        except BaseException as error:
            live.failed = not self.caught(error, stack)
            if not self.digests:
                with unobserved():
                    live.held = held(sys._getframe(2))
            if not looked:
                self._walk(live, roots)  # nodes remain after a backward, so it is not too late
            raise
        finally:
            self._depth -= 1
        live.looked = looked or self.closely(index)
        reached = live.leaves
        if not live.looked:
            live.leaves = []
        elif self.digests:
            with unobserved():
                if not looked:
                    self._walk(live, roots)
                live.value = tuple(x for root in roots for x in digest(root) or ())
                self._latest.clear()
                if wanted is None:
                    live.gains = [
                        _gain(before[id(leaf)].digest() if id(leaf) in before else None, self._digest_of(leaf))
                        for leaf in live.leaves
                    ]
                elif result is not None:
                    live.leaves, live.gains = wanted, [digest(g) for g in _gradients(result, wanted)]
                else:
                    live.gains = [None] * len(live.leaves)
        else:
            live.leaves = []
        if self.inert and not tracked:  # what is differentiated again is part of the values
            with unobserved():
                result = zeroed(reached, result, wanted)
        self._ending = self.enough(len(self._passes), event)
        if self._ending and not self._stepped:
            raise Stop
        return result

    def _walk(self, live: _LivePass, roots: list[torch.Tensor]) -> None:
        if self.graphs:
            live.leaves, live.nodes, live.graph = graph_of(roots)
            if self.digests:
                self._leaves.update((id(leaf), leaf) for leaf in live.leaves)

    @property
    def last_graph(self) -> set[Any]:
        """The nodes of the last pass."""
        return self._passes[-1].graph if self._passes else set()

    def carriers(self, holders: Sequence[tuple[str, Any]]) -> tuple[str, ...]:
        """Which of the ``holders`` (path, grad_fn) lie in the graph of the last pass."""
        last = self._passes[-1].graph
        return tuple(path for path, node in holders if node in last)

    def passes(self, name_of: Callable[[torch.Tensor], str | None]) -> tuple[BackwardPass, ...]:
        """What was heard, with every leaf named; a leaf without a name is known by its shape and its turn."""
        anonymous: dict[int, str] = {}

        def record(pairs: Iterable[tuple[torch.Tensor, tuple[float, ...] | None]]) -> tuple[LeafGradient, ...]:
            named = [
                LeafGradient(
                    name_of(leaf) or anonymous.setdefault(id(leaf), f"leaf {len(anonymous) + 1}"),
                    shape_of(leaf),
                    gain,
                )
                for leaf, gain in pairs
            ]
            return tuple(sorted(named, key=lambda g: g.leaf))

        gained = [record(zip(live.leaves, live.gains)) for live in self._passes]
        repeated = {id(step): record(step) for step in self._unlooked.values()}
        return tuple(
            BackwardPass(
                live.backward,
                gains,
                live.nodes,
                live.failed,
                tuple(repeated.get(id(step)) or record(step) for step in live.steps),
                live.held,
                live.value,
                live.looked,
            )
            for live, gains in zip(self._passes, gained)
        )


class _Ears:
    """Not a generator, which would take off those of somebody else when it is closed as garbage."""

    def __init__(self, trace: GradientTrace) -> None:
        self._trace = trace
        self._plain = torch.autograd.backward, torch.autograd.grad
        self._stepping: Any = None

    def __enter__(self) -> GradientTrace:
        trace = self._trace
        self._plain = plain_backward, plain_grad = torch.autograd.backward, torch.autograd.grad

        # Parameter names are torch's own: people call both with keywords.
        def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, grad_variables=None, inputs=None):  # type: ignore[no-untyped-def] # fmt: skip
            tensors = _lasting(tensors)
            roots = _tensors(tensors)

            def call(retain: bool) -> Any:
                kept = True if retain else retain_graph
                return plain_backward(tensors, grad_tensors, kept, create_graph, grad_variables, inputs)

            def watched(call: _Call) -> Any:
                retained = bool(create_graph if retain_graph is None else retain_graph)
                return trace._watch(roots, retained, call, None, bool(create_graph), inputs is not None)

            return trace.shielded(call, watched, False)

        def grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, *args, **kwargs):  # type: ignore[no-untyped-def] # fmt: skip
            outputs, inputs = _lasting(outputs), _lasting(inputs)
            sources, wanted = _tensors(outputs), _tensors(inputs)

            def call(retain: bool) -> Any:
                kept = True if retain else retain_graph
                return plain_grad(outputs, inputs, grad_outputs, kept, create_graph, *args, **kwargs)

            def watched(call: _Call) -> Any:
                retained = bool(create_graph if retain_graph is None else retain_graph)
                return trace._watch(sources, retained, call, wanted, bool(create_graph), True)

            return trace.shielded(call, watched, False)

        self._stepping = register_optimizer_step_pre_hook(trace._step)
        torch.autograd.backward, torch.autograd.grad = StandIn(backward, plain_backward), StandIn(grad, plain_grad)
        return trace

    def __exit__(self, *exception: Any) -> None:
        torch.autograd.backward, torch.autograd.grad = self._plain
        self._stepping.remove()


def _lasting(given: Any) -> Any:
    """What torch is handed, to be gone through more than once: an iterator has to be kept."""
    return list(given) if isinstance(given, Iterator) else given


def _tensors(given: Any) -> list[torch.Tensor]:
    """The tensors among what torch is handed: one, or a collection.

    Edges of a graph, which are tuples, and what only behaves like a tensor are none.
    """
    single = isinstance(given, (torch.Tensor, GradientEdge)) or not isinstance(given, Iterable)
    return [one for one in ([given] if single else values_of(given)) if isinstance(one, torch.Tensor)]


def values_of(collection: Any) -> list[Any]:
    """What ``grad`` is handed, or gives, for several leaves: a dict has them for values."""
    return [*(collection.values() if isinstance(collection, Mapping) else collection)]


def _gradients(result: Any, wanted: Sequence[torch.Tensor]) -> Sequence[torch.Tensor | None]:
    """What ``grad`` has given for each of the leaves; nothing where others were wanted beside them."""
    given = values_of(result)
    return given if len(given) == len(wanted) else [None] * len(wanted)


def _gain(before: tuple[float, ...] | None, after: tuple[float, ...] | None) -> tuple[float, ...] | None:
    if after is None or before is None or len(before) != len(after):
        return after
    return tuple(b - a for a, b in zip(before, after))
