"""The record of what a run leaves behind. It holds no tensor and may leave the sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["number", "text", "tensor", "numbers", "items"]


@dataclass(frozen=True)
class Value:
    """What one path leads to.

    ``shape`` is a tensor's, or how many items there are. ``digest`` is of a tensor's or a list's numbers, or the number
    itself; None where it was not looked at. ``text`` is what stands in a string, or of what kind a tuple is whose items have names.
    """

    kind: Kind
    shape: tuple[int, ...] = ()
    digest: tuple[float, ...] | None = ()
    text: str = ""


@dataclass(frozen=True)
class Leaf:
    """A named tensor that requires grad and was computed from nothing: what is in its ``.grad``, and who updates it.

    ``gradient`` is a digest, None where ``.grad`` is None. ``optimizers`` are the paths of those that hold it. ``parameter``: it
    is a ``torch.nn.Parameter``.
    """

    gradient: tuple[float, ...] | None
    optimizers: tuple[str, ...] = ()
    parameter: bool = False


@dataclass(frozen=True)
class Outcome:
    """What a run leaves behind. ``values`` and ``leaves`` are by path over the user's names, in their order.

    ``computed`` are the paths of tensors that have a history. ``printed`` is the text that went to the standard output,
    ``random`` a digest of the state of each loaded generator that later cells draw from. ``statistics`` are the paths of buffers
    of torch's own modules, which a forward updates by itself. ``ahead``, where no backward was run, has what one would give:
    for some tensors with a history a digest of each leaf's gradient; None where it would fail.
    """

    printed: str = ""
    values: Mapping[str, Value] = field(default_factory=dict)
    leaves: Mapping[str, Leaf] = field(default_factory=dict)
    computed: frozenset[str] = frozenset()
    random: Mapping[str, str] = field(default_factory=dict)
    statistics: frozenset[str] = frozenset()
    ahead: Mapping[str, Mapping[str, tuple[float, ...] | None] | None] = field(default_factory=dict)
