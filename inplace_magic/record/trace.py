"""What the user's calls made of the graph, what each backward walks, which names held what at that moment.

NOTE [Trace]. A node is known by autograd's sequence number, never by a reference that would keep a graph alive. The
number grows with every node that is created, so the nodes of one call are a stretch of numbers, and whether a value
is older than an event (a write, a backward that freed a graph) is a comparison. Of each call that created nodes the
stretch and the user's frames are kept; of each backward that is looked at closely, the edges of its graph and the places
(names, attributes, items, closures) whose tensors have a history. When a conflict is met, the values that were
created before the event and used after it, on the way to the stale node, are read off these: that is where a fix can
cut the graph, or where it has to begin anew.
"""

from __future__ import annotations

import re
import types
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch

from . import evidence
from .holders import Held, holders
from .observed import Stack
from .walked_graph import WalkedGraph, reached

_CALLS = 60_000  # remembered at a time
_NODES = 60_000  # of the graphs of backwards, before they are begun anew
_SITES = 12  # of one conflict's edges


@dataclass(frozen=True)
class Walk:
    """The graph of one backward: the roots, the places that held a history when it began.

    ``stepped`` are the ids of the leaves that the next steps after it update, be it after further backwards.
    """

    moment: int
    roots: tuple[int, ...]
    graph: WalkedGraph
    held: tuple[Held, ...]
    stepped: set[int] = field(default_factory=set)

    @cached_property
    def nodes(self) -> set[int]:
        return self.graph.reached(self.roots)

    @cached_property
    def inner(self) -> set[int]:
        """The nodes of which something else than a sum is made."""
        return reached(self.graph.parents, self.graph.bent & self.nodes)

    def leading(self, targets: Iterable[int]) -> set[int]:
        """The nodes from which a target is reached, the targets among them."""
        return reached(self._children, targets)

    @cached_property
    def _children(self) -> dict[int, list[int]]:
        children: dict[int, list[int]] = {}
        for node in self.nodes:
            for parent in self.graph.parents[node]:
                children.setdefault(parent, []).append(node)
        return children


@dataclass(frozen=True)
class LiveEdge:
    """A value between two calls: ``user`` (-1: the backward itself) used what ``made`` stands for."""

    user: int
    made: int


class Trace:
    """Filled by the recorder; asked when a run is over."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._stacks: list[Stack] = []
        self.graph = WalkedGraph()
        self.walks: dict[int, Walk] = {}
        self.moments: dict[int, int] = {}  # of every backward
        self._added: list[Walk] = []  # whose gradients the next steps use, or those that are being made
        self._stepping = False
        self._optimizing = False  # an optimizer has stepped
        self._crossings: dict[tuple[int, int, int | None, int | None], tuple[set[int], Crossing]] = {}

    def created(self, begin: int, end: int, stack: Stack) -> None:
        """A call of the user's created the nodes from ``begin`` up to ``end``."""
        self._begins.append(begin)
        self._ends.append(end)
        self._stacks.append(stack)
        if len(self._ends) > _CALLS:
            del self._begins[: _CALLS // 2], self._ends[: _CALLS // 2], self._stacks[: _CALLS // 2]

    def stack_of(self, node: int) -> Stack:
        """Where a node was created; nothing where no call was seen."""
        at = bisect_right(self._ends, node)
        return self._stacks[at] if at < len(self._ends) and self._begins[at] <= node else ()

    def begins(self, index: int, moment: int) -> None:
        """Backward ``index`` begins."""
        self.moments[index] = moment
        if self._stepping:
            self._added, self._stepping = [], False

    def walk(self, index: int, roots: Iterable[torch.Tensor], frame: types.FrameType | None) -> None:
        """Backward ``index`` is going through the graph of ``roots``."""
        if index in self.walks:
            return
        if len(self.graph.parents) > _NODES:
            # What lies so far back is forgotten, and a graph that is carried on is cut short.
            self.walks = {number: walk for number, walk in self.walks.items() if walk.graph is self.graph}
            self.graph = WalkedGraph()
        numbers = self.graph.add(root.grad_fn for root in roots if root.grad_fn is not None)
        self.walks[index] = Walk(self.moments[index], numbers, self.graph, tuple(holders(frame)))
        self._added.append(self.walks[index])

    def stepped(self, parameters: Iterable[torch.Tensor], by_hand: bool = False) -> None:
        """An optimizer has stepped; or, where there is none, a write by hand has changed leaves. (Beside one it may be an average
        of weights.) Of backwards that were not looked at nothing is kept.
        """
        if by_hand and self._optimizing:
            return
        if not by_hand and not self._optimizing:
            self._optimizing = True
            for walk in self.walks.values():
                walk.stepped.clear()
        self._stepping = True
        updated = set(map(id, parameters)) if self._added else set()
        for walk in self._added:
            walk.stepped.update(updated)

    def unhooked_again(self, need: int, freed: int) -> int | None:
        """The latest node of which no hook tells that both backwards go through, the first of which has freed the graph."""
        later, earlier = self.walks.get(need), self.walks.get(freed)
        if later is None or earlier is None or not later.graph.unhooked:
            return None
        return max(later.graph.unhooked & later.nodes & earlier.nodes, default=None)

    # ---- asked when the run is over -------------------------------------------------------------------------------

    def crossing(self, need: int, moment: int, stale: int | None, freed: int | None) -> Crossing | None:
        """The values from before ``moment`` through which backward ``need`` comes to the stale nodes."""
        walk = self.walks.get(need)
        if walk is None:
            return None
        asked = need, moment, stale, freed
        if asked not in self._crossings:
            self._crossings[asked] = self._crossing(*asked)
        leading, found = self._crossings[asked]
        untrained = [edge for edge in _untrained(walk, leading) if self._call(edge.user) != self._call(edge.made)]
        stepped = {leaf for one in self.walks.values() for leaf in one.stepped}
        alone = _alone(walk, found.over, moment)
        alone = {edge for edge in alone if not stepped or walk.graph.leaves_of(edge.made) & stepped}
        return replace(found, untrained=untrained, alone=alone)

    def _crossing(self, need: int, moment: int, stale: int | None, freed: int | None) -> tuple[set[int], Crossing]:
        """All of it but what the steps tell that are still to come; with the nodes that lead to stale ones."""
        walk, earlier = self.walks[need], self.walks.get(freed) if freed is not None else None
        targets = {stale} if stale is not None else set()
        if earlier is not None:
            targets |= walk.nodes & earlier.nodes
        leading, parents = walk.leading(targets), walk.graph.parents
        over = [
            LiveEdge(user, made)
            for user in sorted(leading)
            if user >= moment
            for made in parents.get(user, ())
            if made < moment and made in leading
        ]
        over += [LiveEdge(-1, root) for root in walk.roots if root < moment and root in leading]
        shared = []
        if earlier is not None:
            shared = [
                LiveEdge(user, made)
                for user in sorted(earlier.nodes - walk.nodes)
                for made in earlier.graph.parents[user]
                if made in leading
            ]
            shared += [LiveEdge(-1, root) for root in earlier.roots if root in leading]
        below = reached(parents, [edge.made for edge in over])
        past = self._latest_before(moment, need)
        holding = past.held if past is not None else ()
        repeated = self._repeated(leading, moment)
        return leading, Crossing(
            over=over,
            terms={edge for edge in over if edge.user not in walk.inner},
            alone=set(),
            shared=shared,
            stale=sorted(leading & below),
            untrained=(),
            held=holding,
            held_earlier=earlier.held if earlier else (),
            held_later=walk.held,
            walked=walk.nodes,
            repeated=repeated,
        )

    def _call(self, node: int) -> int:
        """Which call made a node; nobody can cut an edge between two nodes of one call."""
        return bisect_right(self._ends, node)

    def _latest_before(self, moment: int, need: int) -> Walk | None:
        before = [walk for index, walk in self.walks.items() if walk.moment <= moment and index < need]
        return max(before, key=lambda walk: walk.moment, default=None)

    def _repeated(self, leading: set[int], moment: int) -> dict[Stack, int]:
        """How often each call took part in the later graph after the event."""
        counted: dict[Stack, set[int]] = {}
        for node in leading:
            at = bisect_right(self._ends, node)
            if node >= moment and at < len(self._ends):
                counted.setdefault(self._stacks[at], set()).add(at)
        return {stack: len(calls) for stack, calls in counted.items()}


@dataclass(frozen=True)
class Crossing:
    """The edges over an event: ``over`` it in the later graph, and from the ``shared`` part into the earlier one.

    ``stale`` are the nodes from the stale one up to the edges, oldest first.
    """

    over: Sequence[LiveEdge]
    terms: set[LiveEdge]
    alone: set[LiveEdge]
    shared: Sequence[LiveEdge]
    stale: Sequence[int]
    untrained: Sequence[LiveEdge]
    held: Sequence[Held]
    held_earlier: Sequence[Held]
    held_later: Sequence[Held]
    walked: set[int]
    repeated: dict[Stack, int]


def record_of(crossing: Crossing, trace: Trace, place: evidence.Placing) -> evidence.Crossing:
    """A crossing as plain records; ``place`` tells where a stack lies."""

    def edges(live: Sequence[LiveEdge], held: Sequence[Held], over: bool = False) -> tuple[evidence.Edge, ...]:
        found: dict[object, evidence.Edge] = {}
        times: dict[Stack, set[int]] = {}
        for edge in live:
            times.setdefault(trace.stack_of(edge.user), set()).add(edge.user)
        for edge in live:
            used, made = trace.stack_of(edge.user), trace.stack_of(edge.made)
            names = tuple(sorted({one.record for one in held if edge.made in one.nodes}))
            again = crossing.repeated.get(used, 0) > len(times[used])
            term, alone = edge in crossing.terms, edge in crossing.alone
            record = evidence.Edge(place(used), place(made), names, again, edge.user < 0, term, alone, over)
            found.setdefault((used, made, names), record)
            if len(found) == _SITES:
                break
        return tuple(found.values())

    lines = dict.fromkeys(trace.stack_of(node) for node in crossing.stale)
    return evidence.Crossing(
        edges(crossing.over, (*crossing.held, *crossing.held_later), over=True),
        edges(crossing.shared, crossing.held_earlier),
        tuple(place(stack) for stack in lines if stack)[-_SITES:],
        edges(crossing.untrained, crossing.held_later),
        frozenset(_partly(crossing.held_later, crossing.walked)),
    )


def _partly(held: Sequence[Held], walked: set[int]) -> Iterator[str]:
    """The containers that hold items a backward leaves out beside those it goes through.

    Not where it goes through the first of them and leaves out what was added since: a list that is still full of what an
    earlier backward has used, ``zip(log_probs, rewards)`` with the rewards of the last episode. Of items that are
    tuples themselves, what stands at one place is compared: one may share a tensor with the next.
    """
    items: dict[tuple[str, str], dict[str, list[frozenset[int]]]] = {}
    for one in held:
        for container, place in _places(one.record.path):
            items.setdefault((one.record.scope, container), {}).setdefault(place, []).append(one.nodes)
    for one in held:
        if "[" in one.record.shape and one.nodes & walked:
            found = items.get((one.record.scope, one.record.path)) or {"": [frozenset({node}) for node in one.nodes]}
            if any(_left_out(parts, walked) for parts in found.values()):
                yield one.record.path


def _left_out(parts: Sequence[frozenset[int]], walked: set[int]) -> bool:
    left = [min(part) for part in parts if part and not part & walked]
    return bool(left) and min(left) < max((max(part & walked) for part in parts if part & walked), default=0)


def _places(path: str) -> Iterator[tuple[str, str]]:
    """``memory``, ``[0]`` and ``memory[3]``, an empty text, for ``memory[3][0]``: what holds it, and where in its items."""
    for found in re.finditer(r"\[[^]]*\]", path):
        yield path[: found.start()], path[found.end() :]


def _alone(walk: Walk, over: Sequence[LiveEdge], moment: int) -> set[LiveEdge]:
    """The edges of each of which whole terms of the loss are computed: on its way to where terms are added up nothing else
    that has a history comes in, be it another value from before the event or a leaf that the next step updates.
    """
    parents, leaves = walk.graph.parents, walk.graph.leaves
    made_of: dict[int, int | None] = {edge.made: edge.made for edge in over}  # all that a node has its history from
    for node in sorted(node for node in walk.nodes if node >= moment):
        given = {made_of.get(parent) for parent in parents[node]}
        mixes = node in leaves and (not walk.stepped or bool(leaves[node] & walk.stepped))
        made_of[node] = given.pop() if len(given) == 1 and not mixes else None
    mixing = [node for node in walk.inner if node >= moment]
    mixed = reached(
        parents, [p for node in mixing for p in parents[node] if made_of.get(p) not in (None, made_of.get(node))]
    )
    return {
        edge
        for edge in over
        if edge.user not in mixed and (edge.user not in walk.inner or made_of.get(edge.user) == edge.made)
    }


def _untrained(walk: Walk, leading: set[int]) -> list[LiveEdge]:
    """The edges from what leads to a leaf that is stepped to what leads to none."""
    trained = walk.leading(
        node for node, leaves in walk.graph.leaves.items() if node in walk.nodes and leaves & walk.stepped
    )
    return [
        LiveEdge(user, made)
        for user in sorted(leading & trained)
        for made in walk.graph.parents.get(user, ())
        if made in leading and made not in trained
    ]
