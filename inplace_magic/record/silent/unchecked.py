"""What was not looked at, counted, so that "nothing found" is never said of it.

Each entry is a kind in the report's catalogue (``unchecked_...``) with its number.
"""

from __future__ import annotations

from collections import Counter

from .events import Detector, Passing, Run

_CPP, _COMPILED = "CppFunction", "CompiledFunction"


class Unchecked(Detector):
    """Counts it."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.counts: Counter[str] = Counter()
        self._passes = 0

    def backward_begins(self, passing: Passing) -> None:
        self._passes += 1
        if self._passes & (self._passes - 1):
            return  # a training loop goes through the same nodes each time
        found: Counter[str] = Counter()
        for node in passing.nodes:
            kind = type(node).__name__
            if kind in (_CPP, "CppNode") or "::" in kind:
                found["cpp_functions"] += 1
            elif _COMPILED in kind:
                found["compiled"] += 1
        for kind, count in found.items():
            self.counts[kind] = max(self.counts[kind], count)
