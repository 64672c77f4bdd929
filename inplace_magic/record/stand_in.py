"""A wrapper that is equal to what it stands for: a ``__torch_function__`` that looks up what it handles finds it.

``Tensor.backward`` hands on what stands by that name in torch when it is called. While that is ours, ``func == plain`` and
look-ups hold, ``func is plain`` does not.
"""

from __future__ import annotations

import functools
import pkgutil
import types
from collections.abc import Callable
from typing import Any


class StandIn(functools.partial[Any]):
    """Called as a function of ours, in no frame of its own; compared, hashed, pickled and documented as ``plain``."""

    plain: Callable[..., Any]

    def __new__(cls, function: Callable[..., Any], plain: Callable[..., Any]) -> StandIn:
        made = super().__new__(cls, function)
        functools.update_wrapper(made, plain)
        made.plain = plain
        return made

    def __eq__(self, other: object) -> bool:
        return other is self or self.plain == other

    def __hash__(self) -> int:
        return hash(self.plain)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> Any:
        return pkgutil.resolve_name, (f"{self.plain.__module__}:{self.plain.__qualname__}",)

    def __deepcopy__(self, memo: dict[int, Any]) -> StandIn:
        return self
