"""Notebooks at the command line: run in real kernels, explained, fixed with every other byte left as it was."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from inplace_magic.cli import ipynb
from inplace_magic.cli.settings import BadUseError
from inplace_magic.cli.without_watch import without_first_line
from inplace_magic.diagnosis import Diagnosis
from inplace_magic.tour import SITUATIONS
from tests.cells import run_cells
from tests.command import command

HEALTHY = ("import torch\nprint('hello')", "", "w = torch.ones(3, requires_grad=True)\n(w * 2).sum().backward()")
MODEL = "def grow(x):\n    x += 1\n    return x\n"


def notebook(path: Path, *cells: str, tags: tuple[str, ...] = (), **metadata: Any) -> Path:
    """A notebook as Jupyter writes it; ``tags`` are those of its last cell but one."""
    code = [
        {"cell_type": "code", "execution_count": None, "id": f"c{i}", "metadata": {}, "outputs": [],
         "source": cell.splitlines(keepends=True)}
        for i, cell in enumerate(cells)
    ]  # fmt: skip
    if tags:
        code[-2]["metadata"] = {"tags": list(tags)}
    data = {
        "cells": [{"cell_type": "markdown", "id": "m", "metadata": {}, "source": ["# Größe\n", "\n", "text"]}, *code],
        "metadata": {"kernelspec": {"display_name": "P", "language": "python", "name": "not_here"}} | metadata,
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def sources(path: Path) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"][1:]]


def test_folder_of_notebooks_is_found_fixed_and_clean(tmp_path: Path) -> None:
    """As a step in CI would: the same places and fixes as in a shell, then nothing more to find."""
    chosen = [next(s for s in SITUATIONS if word in s.title) for word in ("in another cell", "nothing is raised")]
    paths = {s.title: notebook(tmp_path / f"n{i}.ipynb", *s.cells) for i, s in enumerate(chosen)}
    before = {path: path.read_text(encoding="utf-8") for path in paths.values()}
    (tmp_path / "growth.py").write_text(MODEL)
    uses_file = notebook(tmp_path / "n3.ipynb", "import torch, growth\nw = torch.ones(2, requires_grad=True)",
                         "growth.grow(w.exp()).sum().backward()")  # fmt: skip
    notebook(tmp_path / "n4.ipynb", *HEALTHY)
    notebook(tmp_path / ".hidden" / "n5.ipynb", "1 / 0")
    ended = command("--json", "--fix", "--check", ".", folder=tmp_path)
    assert ended.status == 1, ended.err
    found = {os.path.basename(line["target"]): line for line in ended.findings}
    assert sorted(found) == ["n0.ipynb", "n1.ipynb", "n3.ipynb"]
    assert "hello\n" in ended.err and "n4.ipynb: nothing found" in ended.err
    for situation in chosen:
        path = paths[situation.title]
        theirs = found[path.name]
        *first, last = situation.cells
        ours = run_cells(*first, f"%%autograd_check\n{last}" if situation.check else last).diagnosis
        assert ours is not None
        assert (theirs["family"], theirs["fixes"][0]["title"]) == (ours.family, ours.fixes[0].title)
        for which in ("changed", "saved", "needed"):
            place = theirs[which]
            assert (
                sources_before(before[path])[place["cell"] - 1].splitlines()[place["line"] - 1].strip() == place["text"]
            )
            assert place["text"] == getattr(ours, which).text
        assert path.with_name(path.name + ".orig").read_text(encoding="utf-8") == before[path]
        only_sources_differ(before[path], path.read_text(encoding="utf-8"))
    assert (tmp_path / "growth.py").read_text() == MODEL.replace("x += 1", "x = x + 1")
    assert not uses_file.with_name("n3.ipynb.orig").exists()
    again = command("--json", "--check", ".", folder=tmp_path)
    assert (again.status, again.out) == (0, ""), again.err


def sources_before(text: str) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(text)["cells"][1:]]


def only_sources_differ(old: str, new: str) -> None:
    """The lines outside of the rewritten cell's source are the same, byte for byte."""
    ours, theirs = old.split("\n"), new.split("\n")
    while ours and theirs and ours[0] == theirs[0]:
        del ours[0], theirs[0]
    while ours and theirs and ours[-1] == theirs[-1]:
        del ours[-1], theirs[-1]
    assert ours or theirs
    assert all(line.startswith('    "') for line in (*ours, *theirs))


def test_report_of_a_notebook(tmp_path: Path) -> None:
    notebook(
        tmp_path / "a.ipynb",
        "import torch\nw = torch.ones(2, requires_grad=True)",
        "y = w.exp()\ny += 1\ny.sum().backward()",
    )
    ended = command("a.ipynb", folder=tmp_path)
    assert ended.status == 1
    assert " 2 │ y += 1" in ended.out and "--- In[2]\n+++ In[2] fixed\n" in ended.out
    assert "your session" not in ended.out and "%autograd_fix" not in ended.out
    assert "Cell In[2], line 3" in ended.err and "\x1b" not in ended.err


def test_other_failure_and_expected_failure(tmp_path: Path) -> None:
    path = notebook(tmp_path / "a.ipynb", "print('out')\nimport sys\nprint('err', file=sys.stderr)",
                    "raise ValueError('meant')", "nope", tags=("raises-exception",))  # fmt: skip
    ended = command("--fix", path, folder=tmp_path)
    assert (ended.status, ended.out) == (2, "out\n")
    assert "err\n" in ended.err and "NameError: name 'nope' is not defined" in ended.err and "meant" not in ended.err
    assert os.listdir(tmp_path) == ["a.ipynb"]


def test_only_some_cells_are_watched_and_a_dead_kernel(tmp_path: Path) -> None:
    silent = "x = torch.ones(2, requires_grad=True)\nloss = (x ** 2).sum()\nx.data += 1\nloss.backward()"
    notebook(tmp_path / "a.ipynb", "import torch", silent, "import os\nos._exit(1)")
    ended = command("--json", "--check", "--cells", "1,3", "a.ipynb", folder=tmp_path)
    assert (ended.status, ended.out) == (2, "")
    assert "the kernel of a.ipynb died" in ended.err and "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("content", "line"),
    [
        pytest.param(None, "a.ipynb cannot be read (No such file or directory)", id="missing"),
        pytest.param("{", "a.ipynb is no notebook: not valid json", id="invalid json"),
        pytest.param("", "a.ipynb is no notebook: not valid json", id="empty"),
        pytest.param("\x00\x01", "a.ipynb is no notebook: not valid json", id="binary"),
        pytest.param("[1]", "a.ipynb is no notebook: it has no nbformat", id="other json"),
        pytest.param('{"nbformat": 3, "worksheets": []}', "a.ipynb is a notebook of an old format", id="old format"),
        pytest.param('{"nbformat": 4, "cells": [], "metadata": {"kernelspec": {"language": "julia"}}}',
                     "a.ipynb is a notebook of julia, not of Python", id="another language"),
    ],
)  # fmt: skip
def test_bad_notebook_is_one_line(content: str | None, line: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "a.ipynb").write_text(content)
    ended = command("a.ipynb", folder=tmp_path)
    assert (ended.status, ended.out) == (2, "") and line in ended.err and ended.err.count("\n") == 1


def test_arguments_are_not_for_notebooks(tmp_path: Path) -> None:
    notebook(tmp_path / "a.ipynb", "1")
    ended = command("a.ipynb", "--lr", folder=tmp_path)
    assert ended.status == 2 and "--lr is no notebook; a notebook takes no arguments" in ended.err


def test_without_nbclient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook(tmp_path / "a.ipynb", "1")
    monkeypatch.setitem(sys.modules, "nbclient", None)
    ended = command("a.ipynb", folder=tmp_path)
    assert ended.status == 2 and "pip install nbclient" in ended.err and "Traceback" not in ended.err


# ---- the file as text ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("indent", [None, 1, 2, 4, "\t"])
@pytest.mark.parametrize("escaped", [True, False])
@pytest.mark.parametrize("as_list", [True, False])
def test_rewriting_leaves_every_other_byte(tmp_path: Path, indent: Any, escaped: bool, as_list: bool) -> None:
    def text(middle: str) -> str:
        cells = [
            {"cell_type": "code", "metadata": {"source": ["no"]}, "outputs": [{"text": "ä"}],
             "source": source.splitlines(keepends=True) if as_list else source}
            for source in ('a = "]"\nb = "\\"}"\n', middle, "c = 'ä'")
        ]  # fmt: skip
        data = {"metadata": {"cells": [1, {"a": "]"}]}, "cells": cells, "nbformat": 4}
        return json.dumps(data, indent=indent, ensure_ascii=escaped) + "\n"

    path = tmp_path / "a.ipynb"
    for newline in ("\n", "\r\n"):
        path.write_bytes(text("x += 1\ny = 'ö'").replace("\n", newline).encode())
        new = "x = x + 1\n\ny = 'ö'"
        assert ipynb.rewritten(ipynb.read(str(path)), {1: new}) == text(new).replace("\n", newline)


def test_rewriting_an_empty_source(tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    path.write_text('{"nbformat": 4, "cells": [{"cell_type": "code", "source": []}]}')
    assert ipynb.rewritten(ipynb.read(str(path)), {0: "a\nb"}).endswith('"source": ["a\\n", "b"]}]}')
    with pytest.raises(BadUseError):
        ipynb.read(str(tmp_path / "none.ipynb"))


def test_record_there_and_back() -> None:
    found = run_cells(*SITUATIONS[8].cells).diagnosis
    assert found is not None
    assert Diagnosis.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    cell = found.cell
    assert cell is not None
    watched = run_cells(SITUATIONS[8].cells[0], f"%%autograd_check\n{SITUATIONS[8].cells[1]}").diagnosis
    assert watched is not None
    shifted = without_first_line(watched, cell)
    assert shifted.sources == found.sources
    assert (shifted.changed, shifted.saved and shifted.saved.line) == (
        found.changed
        and type(found.changed)(**{**vars(found.changed), "columns": shifted.changed and shifted.changed.columns}),
        found.saved and found.saved.line,
    )
    assert shifted.fixes[0].cells == found.fixes[0].cells and shifted.fixes[0].diff == found.fixes[0].diff
