"""Runs cells in a real shell with the extension loaded, for tests."""

from __future__ import annotations

import atexit
import contextlib
import io
import sys
import textwrap
from dataclasses import dataclass
from typing import Any

import IPython
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import inplace_magic
from inplace_magic.diagnosis import Diagnosis

_MAIN = sys.modules["__main__"]
fixes: int | None = None  # how many a report of a new shell has at most; None: as many as people get
tracebacks = "Context"  # how much a new shell shows of an error, see %xmode


@dataclass
class Run:
    """What came of some cells: the shell, what was printed, the last error and the diagnosis of this session."""

    shell: Any
    output: str
    error: BaseException | None
    diagnosis: Diagnosis | None

    def cell(self, text: str) -> Run:
        """Runs one more cell in the same session."""
        return run_in(self.shell, [text])


def plain_shell() -> Any:
    """A new shell without the extension."""
    InteractiveShell.clear_instance()
    sys.modules["__main__"] = _MAIN  # a shell keeps the module it replaces: the one before, with all that it holds
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor" if IPython.version_info[0] >= 9 else "NoColor"
    config.InteractiveShell.xmode = tracebacks
    if fixes is not None:
        config.InplaceMagic.fixes = fixes
    return InteractiveShell.instance(config=config)


def new_shell() -> Any:
    shell = plain_shell()
    atexit.unregister(shell.atexit_operations)  # thousands of shells would live, and be reset one by one, at the end
    shell.run_line_magic("load_ext", "inplace_magic")
    return shell


def run_in(shell: Any, cells: list[str]) -> Run:
    error = None
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        for cell in cells:
            result = shell.run_cell(cell, store_history=True)
            error = result.error_before_exec or result.error_in_exec
    return Run(shell, out.getvalue(), error, inplace_magic.last_diagnosis())


def run_cells(*cells: str) -> Run:
    """Runs dedented cells, one after the other, in a new shell."""
    return run_in(new_shell(), [textwrap.dedent(cell).lstrip("\n") for cell in cells])
