"""The transformations: each registers its function for the families of failures in which it can be of use.

Adding a file adds it. It may be generous: whatever it proposes is run before anyone sees it.
"""

from __future__ import annotations

import importlib
import logging
import pkgutil
from collections.abc import Callable, Iterable
from functools import cache

from .problem import Problem
from .proposal import Proposal

_log = logging.getLogger(__name__)

Transform = Callable[[Problem], Iterable[Proposal]]
TRANSFORMS: dict[Transform, frozenset[str]] = {}


def register(*families: str) -> Callable[[Transform], Transform]:
    def decorate(transform: Transform) -> Transform:
        TRANSFORMS[transform] = frozenset(families)
        return transform

    return decorate


@cache
def load() -> None:
    """Imports every module of ``transforms``; those with a transformation register it."""
    package = importlib.import_module(__package__)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)


def passed_over(name: str) -> None:
    """Called while what a transformation has raised is handled: people get the other fixes. Tests raise it."""
    _log.debug("%s crashed", name, exc_info=True)
