"""Blocks that a line magic runs as cells of their own: %paste, %cpaste, %rerun."""

from __future__ import annotations

import IPython
import pytest
from IPython.core.interactiveshell import InteractiveShell

from inplace_magic.extension import of_shell

from ..cells import Run, new_shell, run_in

SETUP = "import torch\nw = torch.ones(3, requires_grad=True)"
BODY = "y = w.exp()\ny += 1\ny.sum().backward()"
STORES = IPython.version_info >= (8,)  # whether %paste stores what it runs


def with_paste(shell: InteractiveShell, *blocks: str) -> InteractiveShell:
    """A shell with a ``%paste`` that has these blocks to paste, as IPython's own runs them in a terminal."""
    waiting = list(blocks)

    def paste(line: str) -> None:
        shell.run_cell(waiting.pop(0), STORES)

    shell.register_magic_function(paste, "line", "paste")
    return shell


def in_prompt(done: Run, line: int) -> str:
    """The text of a line as it was run."""
    diagnosis = done.diagnosis
    assert diagnosis is not None and diagnosis.cell is not None
    return diagnosis.sources[diagnosis.cell].splitlines()[line - 1]


def test_a_cell_after_a_pasted_one_is_known_by_its_own_number() -> None:
    shell = with_paste(new_shell(), "q = 1\nr = 2")
    run_in(shell, [SETUP, "%paste"])
    number = shell.execution_count
    done = run_in(shell, [BODY])
    diagnosis = done.diagnosis
    assert diagnosis is not None and diagnosis.cell == number
    assert diagnosis.changed is not None and (diagnosis.changed.cell, diagnosis.changed.text) == (number, "y += 1")
    assert diagnosis.fixes and not diagnosis.notes


def test_a_pasted_cell_that_fails_is_named_as_the_traceback_names_it_and_fixed() -> None:
    done = run_in(with_paste(new_shell(), BODY), [SETUP, "%paste"])
    diagnosis = done.diagnosis
    assert diagnosis is not None and diagnosis.changed is not None and diagnosis.fixes
    assert in_prompt(done, diagnosis.changed.line) == "y += 1"
    assert diagnosis.cell == (3 if STORES else 2)
    assert f"In[{diagnosis.cell}]" in done.output


def test_what_a_pasted_cell_has_made_is_made_again_from_its_own_text() -> None:
    shell = with_paste(new_shell(), "def write(t):\n    t += 1\n    return t")
    run_in(shell, [SETUP, "%paste", "unused = 1"])
    done = run_in(shell, ["y = write(w.exp())\ny.sum().backward()"])
    diagnosis = done.diagnosis
    assert diagnosis is not None and diagnosis.changed is not None
    assert diagnosis.changed.text == "t += 1" and diagnosis.changed.cell == (3 if STORES else 2)
    assert diagnosis.fixes


@pytest.mark.skipif(not STORES, reason="IPython 7 does not store what is pasted, nor the names of its code")
def test_a_cell_pasted_before_the_extension_was_loaded_is_found_by_the_name_of_its_code() -> None:
    shell = with_paste(new_shell(), "q = 1", "def write(t):\n    t += 1\n    return t")
    shell.run_line_magic("unload_ext", "inplace_magic")
    run_in(shell, [SETUP, "%paste", "%paste", "unused = 1"])
    shell.run_line_magic("load_ext", "inplace_magic")
    diagnosis = run_in(shell, ["y = write(w.exp())\ny.sum().backward()"]).diagnosis
    assert diagnosis is not None and diagnosis.changed is not None
    assert (diagnosis.changed.text, diagnosis.changed.cell) == ("t += 1", 5)
    assert diagnosis.fixes


def test_a_pasted_check_watches_the_pasted_cell() -> None:
    done = run_in(with_paste(new_shell(), f"%%autograd_check\n{BODY}"), [SETUP, "%paste"])
    diagnosis = done.diagnosis
    assert diagnosis is not None and diagnosis.changed is not None
    assert diagnosis.changed.text == "y += 1" and diagnosis.fixes


def test_a_cell_that_runs_another_one_by_hand_is_spoken_of_itself() -> None:
    shell = new_shell()
    done = run_in(shell, [SETUP, "y = w.exp()\nget_ipython().run_cell('z = 1')\ny += 1\ny.sum().backward()"])
    diagnosis = done.diagnosis
    assert diagnosis is not None and diagnosis.changed is not None and diagnosis.changed.line == 3


def test_nothing_is_known_of_cells_while_none_runs() -> None:
    shell = new_shell()
    run_in(shell, [SETUP])
    extension = of_shell(shell)
    assert extension is not None and extension.running_cell() is None
