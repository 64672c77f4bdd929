"""The n-th case of a kind: the README's command has a few of each, ``-m broad`` the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import pytest


def broad(
    values: Iterable[Any],
    one_in: int,
    name: Callable[[Any], str] = str,
    kind: Callable[[Any], Hashable] = lambda value: None,
) -> list[Any]:
    """Parameters, all of them; of each kind the first, and one in so many, stay in the README's command.

    A value may be a ``pytest.param``, which has a name of its own.
    """
    seen: Counter[Hashable] = Counter()
    marked = []
    for value in values:
        one = value if isinstance(value, type(pytest.param())) else pytest.param(value, id=name(value))
        marks = [*one.marks, pytest.mark.broad] if seen[kind(value)] % one_in else one.marks
        seen[kind(value)] += 1
        marked.append(pytest.param(*one.values, id=one.id, marks=marks))
    return marked
