"""A fixture for pytest: a test that asks for it is watched; it fails if a gradient is silently wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .watch import Check


@pytest.fixture
def autograd_check() -> Iterator[Check]:
    """The test body, watched by ``inplace_magic.check(strict=True)``."""
    import inplace_magic

    with inplace_magic.check(strict=True) as seen:
        yield seen
