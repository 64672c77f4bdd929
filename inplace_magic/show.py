"""Shows a report where the person is looking: rich text in a terminal, a display bundle in a notebook."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any

from .diagnosis import Diagnosis


def show(shell: Any, found: Diagnosis) -> None:
    """Draws the report with the shell's own means."""
    if hasattr(shell, "kernel"):
        from .report.bundle import bundle

        shell.display_pub.publish(data=bundle(found, width=100), metadata={})
        return
    from .report import text

    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    print()
    print(text.render(found, width=width, color=_colourful(shell)))


def _colourful(shell: Any) -> bool:
    if os.environ.get("NO_COLOR") or getattr(shell, "colors", "").lower() == "nocolor":
        return False
    return bool(getattr(sys.stdout, "isatty", lambda: False)())
