"""Notebooks in a real kernel."""

from __future__ import annotations

from typing import Any

import nbclient


def run_notebook(notebook: Any, **options: Any) -> None:
    """Raises what nbclient raises of a cell that fails.

    A kernel's ports are chosen before it opens them. One that finds a port taken dies before it has said anything, and
    another one is started.
    """
    try:
        nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3", **options).execute()
    except RuntimeError as error:
        if "died before replying" not in str(error):
            raise
        nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3", **options).execute()
