"""rich, loaded without a trace in the user's session."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def same_random() -> Iterator[None]:
    """Leave Python's global ``random`` as it was found."""
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)


def load_rich() -> ModuleType:
    """Import ``rich`` with its ``console``, ``text`` and ``cells``. Their first import draws from ``random``."""
    with same_random():
        import rich
        import rich.cells
        import rich.console
        import rich.text
    return rich
