"""The graphs that backwards went through, by the numbers of their nodes: each node is looked at once.

A node's edges never change, and where a graph is carried on, each backward walks all of the earlier ones again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch

from ..torch_private import raw_names, sequence_number

_NODES = 20_000  # that one backward adds
_LEAF = 2**64 - 1  # AccumulateGrad has no number of its own
_SUMS = frozenset(
    ["Add", "Sub", "Neg", "Sum", "Mean", "Stack", "Cat", "View", "Squeeze", "Unsqueeze", "Expand", "ToCopy"]
)  # nodes that hand on what they are given
_SCALES = frozenset({"Mul", "Div"})  # the same, with a constant factor, where only one of the two has a history


class WalkedGraph:
    """``parents`` of each node, the ids of the ``leaves`` that it accumulates into; ``bent``: nodes that do more than add up.

    ``unhooked`` are writes into views and products with a number. They save nothing of which a hook is told, and cannot be
    gone through again once their graph is freed.
    """

    def __init__(self) -> None:
        self.parents: dict[int, tuple[int, ...]] = {}
        self.leaves: dict[int, frozenset[int]] = {}
        self.bent: set[int] = set()
        self.unhooked: set[int] = set()

    def add(self, nodes: Iterable[torch.autograd.graph.Node]) -> tuple[int, ...]:
        """Walks the graph of some nodes, as far as it is not known; their numbers."""
        roots = [(sequence_number(node), node) for node in nodes]
        found, todo, most = self.parents, list(roots), len(self.parents) + _NODES
        while todo and len(found) < most:
            number, node = todo.pop()
            if number in found or number == _LEAF:
                continue
            above, leaves = [], []
            edges = node.next_functions
            for parent, _ in edges:
                if parent is None:
                    continue
                of_parent = sequence_number(parent)
                if of_parent != _LEAF:
                    above.append(of_parent)
                    todo.append((of_parent, parent))
                elif hasattr(parent, "variable"):
                    leaves.append(id(parent.variable))
            found[number] = tuple(above)
            if leaves:
                self.leaves[number] = frozenset(leaves)
            kind = node.name().rstrip("0123456789").removesuffix("Backward")
            scales = kind in _SCALES and sum(parent is not None for parent, _ in edges) == 1
            # MulBackward1 holds a plain number
            by_number = scales and any("other" in one for one in raw_names(type(node)))
            if by_number or kind.endswith("CopySlices"):
                self.unhooked.add(number)
            if not scales and kind not in _SUMS:
                self.bent.add(number)
        return tuple(number for number, _ in roots)

    def leaves_of(self, root: int) -> set[int]:
        """The ids of the leaves to which a backward from there gives gradients."""
        return {leaf for node in self.reached([root]) for leaf in self.leaves.get(node, ())}

    def reached(self, roots: Iterable[int]) -> set[int]:
        """The nodes that a backward from there goes through."""
        return reached(self.parents, roots) & self.parents.keys()


def reached(graph: Mapping[int, Sequence[int]], start: Iterable[int]) -> set[int]:
    """What the edges of a graph lead to, the start included."""
    found: set[int] = set()
    todo = list(start)
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo.extend(graph.get(node, ()))
    return found
