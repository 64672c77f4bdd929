"""A failure is seen once, whatever it is wrapped in, and on the line where the person sees it."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from inplace_magic.message import kind_of
from inplace_magic.session.cell_texts import CellTexts
from tests.cells import run_cells, run_in

SETUP = "import torch\nw = torch.ones(3, requires_grad=True)"
BODY = "x = w.exp()\nx += 1\nx.sum().backward()"
CAUGHT = BODY.replace("\n", "\n    ")
HEADLINE = "In-place change broke the backward pass"

# Cells that must stay without a word of ours.
SILENT = [
    pytest.param(BODY.replace("x += 1", "x = x + 1"), id="a healthy cell"),
    pytest.param("x += = 1", id="a syntax error"),
    pytest.param("raise RuntimeError('out of cheese')", id="a RuntimeError of the user's own"),
    pytest.param("class E(RuntimeError): pass\nraise E('x')", id="a subclass of RuntimeError"),
    pytest.param("torch.ones(2) @ torch.ones(3)", id="a RuntimeError of torch's that is not ours"),
    pytest.param("torch.ones(2).backward()", id="a tensor without a graph"),
    pytest.param("1 / 0", id="another exception"),
    pytest.param("undefined_name", id="a NameError"),
    pytest.param("%no_such_magic", id="an unknown magic"),
    pytest.param(f"try:\n    {BODY.splitlines()[0]}\n    x += 1\n    x.sum().backward()\nexcept RuntimeError:\n    pass",
                 id="an error of ours that the cell catches"),
    pytest.param("raise SystemExit", id="SystemExit"),
    pytest.param(f"try:\n    {CAUGHT}\nexcept RuntimeError:\n    raise ValueError from None",
                 id="an error of ours that the traceback leaves out"),
    pytest.param("raise KeyboardInterrupt", id="KeyboardInterrupt"),
]  # fmt: skip


@pytest.mark.parametrize("cell", SILENT)
def test_nothing_is_said(cell: str) -> None:
    done = run_cells(SETUP, cell)
    assert done.diagnosis is None
    assert "inplace_magic" not in done.output and HEADLINE not in done.output


SEEN = [
    pytest.param(BODY, (2, 1, 3), id="plain"),
    pytest.param("x = w.exp(); x += 1; x.sum().backward()", (1, 1, 1), id="all on one line"),
    pytest.param("x = w.exp()\nx += 1\n%time x.sum().backward()", (2, 1, 3), id="%time on the failing line"),
    pytest.param(f"%%time\n{BODY}", (3, 2, 4), id="%%time on top"),
    pytest.param(f"%%capture\n{BODY}", (3, 2, 4), id="%%capture on top"),
    pytest.param(f"\n\n{BODY}", (4, 3, 5), id="blank lines on top"),
    pytest.param(f"!true\n{BODY}", (3, 2, 4), id="a shell escape on top"),
    pytest.param(BODY.replace("\n", "\r\n"), (2, 1, 3), id="CRLF"),
    pytest.param("if True:\n\tx = w.exp()\n\tx += 1\n\tx.sum().backward()", (3, 2, 4), id="tabs"),
    pytest.param("甲 = w.exp()\n甲 += 1; 甲.sum().backward()", (2, 1, 2), id="Chinese identifiers"),
    pytest.param("  x = w.exp()\n  x += 1\n  x.sum().backward()", (2, 1, 3), id="an indented cell"),
    pytest.param(f"import asyncio\nawait asyncio.sleep(0)\n{BODY}", (4, 3, 5), id="top-level await"),
    pytest.param("def f():\n    x = w.exp()\n    x += 1\n    x.sum().backward()\nf()", (3, 2, 4), id="in a function"),
]


@pytest.mark.parametrize(("cell", "lines"), SEEN)
def test_a_failure_is_seen_once_on_the_line_the_person_sees(cell: str, lines: tuple[int, int, int]) -> None:
    done = run_cells(SETUP)
    done = run_in(done.shell, [cell])
    found = done.diagnosis
    assert found is not None and found.changed and found.saved and found.needed
    assert done.output.count(HEADLINE) == 1
    assert [(p.cell, p.line) for p in (found.changed, found.saved, found.needed)] == [(2, n) for n in lines]
    fix = found.fixes[0]
    assert fix.verified and fix.gradients == "same"
    changed = [a != b for a, b in zip(cell.split("\n"), fix.cells[2].split("\n"), strict=True)]
    assert sum(changed) == 1, "one line is rewritten, every other byte stays"
    accepted = run_in(done.shell, ["%autograd_fix --run"])
    assert accepted.error is None


FUNCTION = "def f(w):\n    x = w.exp()\n    x += 1\n    return x"


@pytest.mark.parametrize(
    ("above", "line"),
    [
        pytest.param("%%time\n", 4, id="%%time"),
        pytest.param("%%time\n\n", 5, id="%%time with a blank line"),
        pytest.param("%%capture\n", 4, id="%%capture"),
        pytest.param("%%time\n%%capture out\n", 5, id="two magics"),
    ],
)
def test_a_function_of_an_earlier_cell_stands_there_below_its_magic(above: str, line: int) -> None:
    done = run_cells(SETUP, f"{above}{FUNCTION}", "%%time\ndef g(w): return w + 1", "f(w).sum().backward()")
    found = done.diagnosis
    assert found is not None and found.changed is not None and found.needed is not None
    assert (found.changed.cell, found.changed.line, found.changed.text) == (2, line, "x += 1")
    assert (found.needed.cell, found.needed.line) == (4, 1)
    assert found.fixes[0].cells == {2: f"{above}{FUNCTION}".replace("x += 1", "x = x + 1")}
    assert run_in(done.shell, ["%autograd_fix --run"]).error is None


def test_a_cell_with_the_text_of_another_ones_body_is_itself() -> None:
    found = run_cells(SETUP, f"%%capture\n{BODY.rpartition(chr(10))[0]}", BODY.rpartition("\n")[0], BODY).diagnosis
    assert found is not None and found.changed is not None and found.changed.cell == 4
    found = run_cells(SETUP, f"%%capture\n{FUNCTION}", FUNCTION, "f(w).sum().backward()").diagnosis
    assert found is not None and found.changed is not None and found.changed.cell == 3


def test_a_function_of_another_notebook_is_no_line_of_the_cell_that_follows(tmp_path: Path) -> None:
    path = tmp_path / "other.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(FUNCTION)]), path)
    found = run_cells(f"%run {path}", f"{SETUP}\n# a\n# b", "f(w).sum().backward()").diagnosis
    assert found is not None and found.changed is not None and found.needed is not None
    assert (found.changed.cell, found.changed.line, found.changed.text) == (None, 3, "x += 1")
    assert found.needed.cell == 3


def test_a_file_run_by_a_magic_is_seen_and_named_by_its_line(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"{SETUP}\n{BODY}\n")
    done = run_cells(f"%run {script}")
    assert done.output.count(HEADLINE) == 1
    assert done.diagnosis is not None and done.diagnosis.changed is not None
    assert done.diagnosis.changed.cell is None and done.diagnosis.changed.line == 4
    assert done.diagnosis.changed.filename == str(script)


def test_another_notebook_run_by_a_magic_is_explained_and_said_not_to_be_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "other.ipynb"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(BODY)])
    nbformat.write(notebook, path)
    found = run_cells(SETUP, f"%run {path}").diagnosis
    assert found is not None and found.changed is not None and found.saved is not None
    assert (found.saved.line, found.changed.line, found.changed.cell) == (1, 2, None)
    assert [kind_of(note) for note in found.notes] == ["rewrites_elsewhere"]


def test_code_from_exec_is_blamed_on_the_line_that_runs_it() -> None:
    done = run_cells(SETUP, f"exec({BODY!r})")
    assert done.output.count(HEADLINE) == 1
    assert done.diagnosis is not None and done.diagnosis.changed is not None
    assert (done.diagnosis.changed.cell, done.diagnosis.changed.line) == (2, 1)


def test_the_traceback_comes_first_and_whole_and_the_error_stands() -> None:
    done = run_cells(SETUP, BODY)
    assert isinstance(done.error, RuntimeError)
    assert "backward()" in done.output[: done.output.index(HEADLINE)]
    assert done.output.index("RuntimeError") < done.output.index(HEADLINE)


def test_the_same_error_raised_again_is_reported_again() -> None:
    done = run_cells(SETUP, BODY, BODY)
    assert done.output.count(HEADLINE) == 2
    assert done.diagnosis is not None and done.diagnosis.cell == 3


def test_last_diagnosis_is_kept_while_other_cells_run() -> None:
    done = run_cells(SETUP, BODY)
    first = done.diagnosis
    later = run_in(done.shell, ["1 + 1", "1 / 0"])
    assert later.diagnosis is first


def test_a_cell_whose_source_is_gone_is_explained_from_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CellTexts, "until", lambda self, current: {})
    done = run_cells(SETUP, BODY)
    assert done.output.count(HEADLINE) == 1
    assert done.diagnosis is not None and not done.diagnosis.fixes
    assert "not run again" in done.diagnosis.notes[0]


GROUP = """
import asyncio
async def train():
    x = w.exp()
    x += 1
    x.sum().backward()
async def all_of_them():
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(train())
await all_of_them()
"""


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(f"try:\n    {CAUGHT}\nexcept RuntimeError as e:\n    raise ValueError from e", id="its cause"),
        pytest.param(
            f"try:\n    {CAUGHT}\nexcept RuntimeError:\n    undefined_name", id="handled when it failed again"
        ),
        pytest.param(GROUP.strip(), id="one of a group"),
    ],
)
def test_the_error_that_another_one_came_from_is_explained(cell: str) -> None:
    done = run_cells(SETUP, cell)
    assert done.output.count(HEADLINE) == 1
    assert done.diagnosis is not None and done.diagnosis.changed is not None and done.diagnosis.needed is not None
    assert (done.diagnosis.changed.text, done.diagnosis.needed.text) == ("x += 1", "x.sum().backward()")
    assert done.diagnosis.fixes


@pytest.mark.parametrize("magic", ["%%timeit -n1 -r1", "%%prun -q", "%%time", "%%capture"])
def test_the_backward_below_a_magic_is_named_by_its_own_line(magic: str) -> None:
    done = run_cells(SETUP, f"{magic}\n{BODY}")
    assert done.diagnosis is not None and done.diagnosis.needed is not None
    assert (done.diagnosis.needed.line, done.diagnosis.needed.text) == (4, "x.sum().backward()")
