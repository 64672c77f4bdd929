"""The seed of every random suite: fixed, so that a failure is met again, and printed where the suite ends.

INPLACE_MAGIC_SEED sets another one.
"""

from __future__ import annotations

import os

SEED = int(os.environ.get("INPLACE_MAGIC_SEED", "20240229"))
