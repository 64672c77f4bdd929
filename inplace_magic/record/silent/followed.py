"""Values without a history that are computed of marked ones: they bear the same marks."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import torch

from ...torch_private import unobserved
from ..operations import arguments, tensors_in
from .events import Call
from .nodes import computed, node_of

_VALUES = 1_024  # that are followed

Mark = TypeVar("Mark")


class Followed(Generic[Mark]):
    """Values, held weakly, so that what nobody computes with any more is let go, each with its marks."""

    def __init__(self, discrete: bool = False) -> None:
        """``discrete``: integers are followed as well, and bools."""
        self._discrete = discrete
        self._values: dict[int, tuple[weakref.ref[torch.Tensor], frozenset[Mark]]] = {}

    def __bool__(self) -> bool:
        return bool(self._values)

    def of(self, call: Call) -> frozenset[Mark]:
        """The marks of what a call is given."""
        return self.of_tensors(one for one in arguments(call.args, call.kwargs) if not one.requires_grad)

    def of_tensors(self, given: Iterable[torch.Tensor]) -> frozenset[Mark]:
        """The marks of some tensors, also where they have become leaves meanwhile."""
        return frozenset[Mark]().union(*map(self._of, given)) if self._values else frozenset[Mark]()

    def follow(self, result: Any, marks: frozenset[Mark]) -> list[Any]:
        """Follows what a call gives and has no history, and gives the nodes of the rest."""
        nodes = []
        if len(self._values) >= _VALUES:
            self.forget_gone()
        for made in tensors_in(result):
            if not (self._discrete or made.is_floating_point()):
                continue
            with unobserved():
                node = node_of(made)
            if node is not None:
                nodes.append(node)
            elif len(self._values) < _VALUES or id(made) in self._values:
                self._values[id(made)] = weakref.ref(made), marks
        return nodes

    def forget_gone(self) -> None:
        self._values = {key: known for key, known in self._values.items() if known[0]() is not None}

    def clear(self) -> None:
        self._values.clear()

    def _of(self, tensor: torch.Tensor) -> frozenset[Mark]:
        known = self._values.get(id(tensor))
        return known[1] if known is not None and known[0]() is tensor else frozenset()


def without_history(call: Call, result: Any) -> list[torch.Tensor]:
    """What a call was given that requires grad, where something that it gives does not go on from that: ``x.argmax()``, ``x > 0``,
    all calls without grad mode. Not for what takes no more than a shape or a type of it, nor for what it has only looked at.
    """
    made = [*tensors_in(result)]
    of_no_values = call.name.endswith(("_like", "_as")) or call.name.startswith("new_")
    if not made or of_no_values or all(map(computed, made)):
        return []
    values = call.args[:1] if call.name == "to" else call.args  # ``x.to(other)``
    given = [one for one in arguments(values, call.kwargs) if one.requires_grad]
    return given if not any(one is other for one in made for other in given) else []
