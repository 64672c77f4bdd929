"""The seed of every random suite, fixed, so that a failure is met again; and how many examples each of them makes.

INPLACE_MAGIC_SEED sets another seed, INPLACE_MAGIC_RANDOM how many times as many examples (20 ahead of a release).
"""

from __future__ import annotations

import os

SEED = int(os.environ.get("INPLACE_MAGIC_SEED", "20240229"))
_SCALE = float(os.environ.get("INPLACE_MAGIC_RANDOM", "1"))


def examples(number: int) -> int:
    """So many, times INPLACE_MAGIC_RANDOM."""
    return max(1, round(number * _SCALE))
