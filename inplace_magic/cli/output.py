"""What the command line says: findings on stdout, everything about the work itself on stderr."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TextIO

from ..diagnosis import Diagnosis, shown_path
from ..message import Language, said
from ..report import printing


class Output:
    """Where findings go. With json they are all that stdout gets: what the target prints goes to stderr meanwhile."""

    def __init__(self, as_json: bool, language: Language = "en") -> None:
        self.as_json, self.language = as_json, language
        self._stdout: TextIO | None = None

    @contextlib.contextmanager
    def reserved(self) -> Iterator[None]:
        """While active, the target's output is kept out of the findings' way."""
        if not self.as_json:
            yield
            return
        sys.stdout.flush()
        kept = os.dup(1)
        os.dup2(2, 1)
        self._stdout = os.fdopen(kept, "w", encoding="utf-8")
        try:
            yield
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()  # what the target has printed last is no finding either
            self._stdout.flush()

    def finding(self, found: Diagnosis, target: str) -> None:
        if self.as_json:
            line = json.dumps(found.to_dict() | {"target": target})
            print(line, file=self._stdout or sys.stdout, flush=True)
            return
        from ..report import text

        # There is no session here, in which something would have to be done or run again.
        fixes = tuple(replace(fix, run=(), live=()) for fix in found.fixes)
        width = min(shutil.get_terminal_size((100, 24)).columns, 120)
        drawn = text.render(
            replace(found, cell=None, fixes=fixes),
            width=width,
            color=_coloured(),
            accept="",
            patch=True,
            language=self.language,
        )
        printing.say(f"\n{shown_path(target)}\n{drawn}")

    def say(self, text: str) -> None:
        """One line about the work itself, in the language of the reports."""
        say(text, self.language)

    def progress(self) -> Callable[[str], None]:
        """What long work tells of itself: at once in a terminal's one line, now and then elsewhere."""
        begun, last = time.monotonic(), [3.0]

        def tell(text: str) -> None:
            if time.monotonic() - begun > last[0]:
                last[0] = 2 * last[0]
                self.say(text)

        return tell


def say(text: str, language: Language) -> None:
    """One line about the work itself."""
    printing.say(f"inplace_magic: {said(text, language)}", sys.stderr)


def _coloured() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
