"""The proof that a changed value makes a gradient wrong.

NOTE [Is the gradient wrong]. That a saved value has changed does not make a gradient wrong: relu reads only the sign
of what it saved, pooling only the shape, a convolution of data saves a weight that it will not read. So a node that
holds a changed value runs twice within the backward, once with the value as saved and once as it is now. Only if that
makes a difference, it is a finding. A Function of the user's own is not run twice; python_nodes.py follows it instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...torch_private import current_node
from .. import evidence
from ..observed import LiveWrite, Saved, differ, saved_by
from .events import Detector, Passing, Run

_CLOSE = 1e-5  # two runs of one node may add up in another order

Suspicion = tuple[Saved, evidence.Backward, LiveWrite | None]


class SecondRun(Detector):
    """Judges the values that other detectors suspect."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._suspects: dict[Any, list[Suspicion]] = {}  # by node, as long as a backward runs
        self._passing: Passing | None = None

    def backward_begins(self, passing: Passing) -> None:
        self._passing = passing
        changed = self.run.changed_values()
        if changed or self.run.packed_elsewhere:
            self.watch(changed)

    def watch(self, changed: set[int]) -> None:
        """Has the nodes that hold one of these values (by id) run twice."""
        assert self._passing is not None
        for node in self._passing.nodes:
            if node in self._suspects or isinstance(node, torch.autograd.function.BackwardCFunction):
                continue
            if any(id(saved) in changed or saved.repacked for saved in saved_by(node)):
                self._suspects[node] = []
                self._passing.handles.append(node.register_hook(self.run.hook(self._second_run(node))))

    def backward_ends(self, passing: Passing, result: Any) -> None:
        self._suspects.clear()
        self._passing = None

    def suspect(self, suspicion: Suspicion) -> bool:
        """Whether the current node will be judged; else nobody can tell whether the value matters."""
        node = current_node()
        if node not in self._suspects:
            return False
        self._suspects[node].append(suspicion)
        return True

    def _second_run(self, node: Any) -> Callable[[Any, Any], None]:
        def compare(result: Sequence[torch.Tensor | None], arrived: Sequence[torch.Tensor | None]) -> None:
            suspicions = self._suspects.get(node)
            if not suspicions:
                return
            others = self._other(node, arrived)
            if others is None or not alike(result, others):
                for suspicion in suspicions:
                    self.run.conflict("silent", *suspicion, node=node)
            suspicions.clear()

        return compare

    def _other(self, node: Any, arrived: Sequence[torch.Tensor | None]) -> Sequence[torch.Tensor | None] | None:
        """What the node gives on the other values; None if it fails on them."""
        self.run.turned = True
        try:
            with torch.no_grad():
                other = node(*arrived)
        except Exception:
            return None
        finally:
            self.run.turned = False
        return other if isinstance(other, tuple) else (other,)


def alike(ones: Sequence[torch.Tensor | None], others: Sequence[torch.Tensor | None]) -> bool:
    """Whether two runs of one node gave the same gradients."""
    if len(ones) != len(others):
        return False
    return all(one is None or other is None or near(one.detach(), other.detach()) for one, other in zip(ones, others))


def near(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are the same but for the order in which their elements were added up."""
    if not differ(one, other):
        return True
    if one.shape != other.shape or one.layout != torch.strided or other.layout != torch.strided:
        return False
    if not (one.is_floating_point() or one.is_complex()):
        return False
    with torch.no_grad():
        scale = float(torch.maximum(one.abs(), other.abs()).nan_to_num(0.0, 0.0, 0.0).max())
        return bool(torch.allclose(one, other, rtol=0.0, atol=_CLOSE * scale, equal_nan=True))
