"""``ipython file.ipy`` and its like, the extension loaded by the configuration: what IPython runs before it asks, or instead."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

LINES = "import torch\nw = torch.ones(3, requires_grad=True)\nx = w.exp()\nx += 1\nx.sum().backward()\n"
HEADLINE = "In-place change broke the backward pass"


def ipython(folder: Path, *arguments: str, typed: str = "") -> Any:
    home = folder / "ipython"
    profile = home / "profile_default"
    profile.mkdir(parents=True, exist_ok=True)
    (profile / "ipython_config.py").write_text('c.InteractiveShellApp.extensions = ["inplace_magic"]\n')
    return subprocess.run(
        [sys.executable, "-m", "IPython", "--no-banner", "--simple-prompt", *arguments],
        input=typed, text=True, capture_output=True, cwd=folder, timeout=300,
        env={**os.environ, "IPYTHONDIR": str(home), "NO_COLOR": "1", "COLUMNS": "100"},
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "fails.ipy").write_text("%time 1\n" + LINES)
    (tmp_path / "fine.ipy").write_text("%time 1\n" + LINES.replace("x += 1", "x = x + 1"))
    (tmp_path / "fails.py").write_text(LINES)
    first, *rest = LINES.splitlines()
    cells = [nbformat.v4.new_code_cell(first), nbformat.v4.new_code_cell("\n".join(rest))]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "fails.ipynb")  # type: ignore[no-untyped-call]
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["fine.ipy"], id="that does not fail"),
        pytest.param(["-c", "1 / 0"], id="that fails of something else"),
    ],
)
def test_nothing_is_said_of_a_run(arguments: list[str], folder: Path) -> None:
    ended = ipython(folder, *arguments)
    assert HEADLINE not in ended.stdout and "inplace_magic" not in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        pytest.param(["fails.ipy"], "In[1]:5", id="a file in IPython's own syntax"),
        pytest.param(["fails.ipynb"], "In[1]:3", id="a notebook"),
        pytest.param(["-c", LINES], "In[1]:4", id="code on the command line"),
        pytest.param(["-c", "%run fails.py"], "fails.py:4", id="a file below %run"),
    ],
)
def test_a_run_that_nobody_follows_is_explained_and_names_no_command(
    arguments: list[str], place: str, folder: Path
) -> None:
    ended = ipython(folder, *arguments)
    assert ended.returncode == 1 or "%run" in arguments[-1]  # which has shown the error itself
    assert ended.stdout.index("modified by an inplace operation") < ended.stdout.index(HEADLINE)
    assert f"  {place}\n    x = w.exp()\n  - x += 1\n  + x = x + 1" in ended.stdout
    assert "%autograd_fix" not in ended.stdout


def test_where_a_prompt_follows_the_fix_is_accepted_there(folder: Path) -> None:
    typed = "%autograd_fix --run\nprint('grad', w.grad.sum() > 8)\n%autograd_fix --undo\n"
    ended = ipython(folder, "-i", "fails.ipy", typed=typed)
    assert "%autograd_fix accepts fix 1" in ended.stdout
    assert "Fixed In[1] and ran it: no error." in ended.stdout and "grad tensor(True)" in ended.stdout
    assert "Undone: In[1] is as it was." in ended.stdout


def test_a_function_of_the_file_is_no_line_of_the_first_cell(folder: Path) -> None:
    (folder / "model.ipy").write_text("import torch\n\ndef f(w):\n    x = w.exp()\n    x += 1\n    return x\n")
    typed = "w = torch.ones(3, requires_grad=True)\nf(w).sum().backward()\n"
    ended = ipython(folder, "-i", "model.ipy", typed=typed)
    report = ended.stdout[ended.stdout.index(HEADLINE) :]
    assert "x += 1" in report and "overwritten here" in report
    assert "  In[2]\n  1 │ f(w).sum().backward()\n" in report
