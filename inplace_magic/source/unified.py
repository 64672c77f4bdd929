"""The change of a text as a unified diff."""

from __future__ import annotations

import difflib


def unified(before: str, after: str, names: tuple[str, str]) -> str:
    """Hunks with two lines of context under a header with the two names; nothing where nothing changed."""
    return "\n".join(difflib.unified_diff(before.splitlines(), after.splitlines(), *names, lineterm="", n=2))


def cell_names(number: int) -> tuple[str, str]:
    """What a cell is called before a fix, then after it."""
    return f"In[{number}]", f"In[{number}] fixed"
