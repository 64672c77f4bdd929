"""Which line of the user's has just run: for writes that no call shows."""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ..source.location import kind_of, user_stack

Stack = tuple[tuple[types.CodeType, int], ...]


class LineWatch:
    """Calls ``then`` once a line of the user's has run; ``last`` is its stack. It yields to a debugger."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then
        self.last: Stack = ()
        self._on = False

    def start(self) -> None:
        if self._on or sys.gettrace() is not None:
            return
        self._on = True
        self.last = ()
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None:  # frames that run already are traced from their next line on
            if kind_of(frame.f_code.co_filename) == "user":
                self.last = self.last or user_stack(frame)
                frame.f_trace = self._trace
                if frame.f_code.co_name == "<module>":
                    break
            frame = frame.f_back
        sys.settrace(self._trace)

    def stop(self) -> None:
        if not self._on:
            return
        self._on = False
        if sys.gettrace() == self._trace:
            sys.settrace(None)
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_trace == self._trace:
                frame.f_trace = None
            frame = frame.f_back

    def _trace(self, frame: types.FrameType, event: str, argument: Any) -> Any:
        if not self._on or kind_of(frame.f_code.co_filename) != "user":
            return None  # a library's lines are none of ours
        if event == "line":
            self._then()
            self.last = user_stack(frame)
        elif event == "return":
            self._then()
            self.last = user_stack(frame.f_back)  # the rest of the caller's line is still to run
        return self._trace


def telling(stack: Stack) -> Stack:
    """The stack with its innermost instruction moved to the one of the same line that may have written."""
    if not stack:
        return stack
    (code, lasti), *outer = stack
    return ((code, _writing(code, lasti)), *outer)


@lru_cache(maxsize=256)
def _writing(code: types.CodeType, lasti: int) -> int:
    positions = list(code.co_positions())
    here = positions[lasti // 2][0] if 0 <= lasti // 2 < len(positions) else None
    best = (0, 0, lasti)
    for instruction in dis.get_instructions(code):
        line, end_line, column, end_column = positions[instruction.offset // 2]
        if line is None or line != here or column is None or end_column is None:
            continue
        augmented = instruction.opname == "BINARY_OP" and instruction.argrepr.endswith("=")
        kind = 3 if augmented else 2 if instruction.opname == "STORE_SUBSCR" else 1
        width = end_column - column if end_line == line else 10_000
        best = max(best, (kind, width, instruction.offset))
    return best[2]
