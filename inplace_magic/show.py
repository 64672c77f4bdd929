"""Shows a report where the person is looking: rich text in a terminal, a display bundle in a notebook."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any

from .diagnosis import Diagnosis
from .message import Language


def show(
    shell: Any, found: Diagnosis, language: Language = "en", *, whole: bool = False, number: int | None = None
) -> None:
    """Draws the report with the shell's own means: as it is, with all fixes in full, or one fix by its number."""
    if hasattr(shell, "kernel") and number is None:
        from .report.bundle import bundle

        shell.display_pub.publish(data=bundle(found, width=100, language=language, whole=whole), metadata={})
        return
    from .report import text

    width, color = min(shutil.get_terminal_size((100, 24)).columns, 120), _colourful(shell)
    if number is not None:
        say(text.render_fixes(found, (number,), width=width, color=color, language=language))
        return
    say("\n" + text.render(found, width=width, color=color, language=language, whole=whole))


def say(text: str) -> None:
    """Prints, also where the terminal cannot show every character."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, "replace").decode(encoding))


def _colourful(shell: Any) -> bool:
    if os.environ.get("NO_COLOR") or getattr(shell, "colors", "").lower() == "nocolor":
        return False
    return bool(getattr(sys.stdout, "isatty", lambda: False)())
