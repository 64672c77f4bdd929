"""The n-th case of a kind: the README's command has a few of each, ``-m broad`` the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import pytest


def broad(values: Iterable[Any], one_in: int, name: Callable[[Any], str] = str,
          kind: Callable[[Any], Hashable] = lambda value: None) -> list[Any]:  # fmt: skip
    """Parameters, all of them; of each kind the first, and one in so many, stay in the README's command."""
    seen: Counter[Hashable] = Counter()
    marked = []
    for value in values:
        at = seen[kind(value)]
        seen[kind(value)] += 1
        marked.append(pytest.param(value, id=name(value), marks=[pytest.mark.broad] if at % one_in else []))
    return marked
