"""A culprit in a file of the user's: named by file and line, fixed in the file and in what was loaded from it."""

from __future__ import annotations

import os
import stat
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inplace_magic.source import atomic_write, files
from tests.cells import Run, run_cells

DECODER = """
import torch
import torch.nn as nn
import torch.nn.functional as F

SCALE = 2


class Decoder(nn.Module):
    made = []

    def __init__(self):
        super().__init__()
        self.score16 = nn.Conv2d(3, 4, 1)
        self.main = nn.Conv2d(3, 4, 1)

    def forward(self, img):
        feature16 = self.score16(img)
        x = F.relu(self.main(img))
        x += feature16  # the skip
        return x


def unchanged(x):
    return x + 1
"""
USE = (
    "import torch\nfrom {module} import Decoder",
    "torch.manual_seed(0)\nnet = Decoder()\nimg = torch.randn(2, 3, 8, 8)\nbefore = net.main.weight.clone()",
    "loss = net(img).pow(2).mean()\nloss.backward()",
)
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a file of the working directory, from which modules can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def write(name: str, text: str, **options: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8", **options)
        return path

    yield write
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def fail(module: str) -> Run:
    return run_cells(*(cell.format(module=module) for cell in USE))


def test_place_and_fix_are_the_files(write: Write) -> None:
    path = write("decoder_a.py", DECODER)
    found = fail("decoder_a").diagnosis
    assert found is not None and found.changed is not None and found.saved is not None and found.needed is not None
    assert (found.changed.label, found.changed.text) == ("decoder_a.py:19", "x += feature16  # the skip")
    assert (found.saved.label, found.needed.label) == ("decoder_a.py:18", "In[3]:2")
    assert found.changed.filename == str(path) and found.changed.cell is None
    fix = found.fixes[0]
    assert (dict(fix.cells), fix.run, fix.verified, fix.gradients) == ({}, (3,), True, "same")
    assert fix.files == {str(path): path.read_text().replace("x += feature16", "x = x + feature16")}
    assert fix.diff.splitlines()[:3] == ["--- decoder_a.py", "+++ decoder_a.py", "@@ -17,5 +17,5 @@"]
    assert found.files == {str(path): path.read_text()}
    assert all(n > 0 for n in found.sources) and found.to_dict()["fixes"][0]["files"]


def test_accepting_writes_the_file_and_keeps_what_lives(write: Write) -> None:
    path = write("decoder_b.py", DECODER)
    old = path.read_text()
    os.chmod(path, 0o640)
    run = fail("decoder_b")
    accepted = run.cell("%autograd_fix --run")
    assert (
        accepted.error is None
        and "Fixed decoder_b.py (its old text is in decoder_b.py.orig) and ran In[3]: no error." in accepted.output
    )
    assert "x = x + feature16  # the skip" in path.read_text()
    assert (path.with_suffix(".py.orig")).read_text() == old
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(p.name for p in path.parent.iterdir() if p.name != "__pycache__") == [
        "decoder_b.py",
        "decoder_b.py.orig",
    ]
    kept = run.cell("assert type(net) is Decoder and torch.equal(net.main.weight, before)\nnet(img).sum().backward()")
    assert kept.error is None
    assert run.cell("%autograd_fix --undo").error is None
    assert path.read_text() == old and not path.with_suffix(".py.orig").exists()
    assert "modified by an inplace operation" in str(run.cell("net(img).sum().backward()").error)


@pytest.mark.all_fixes
def test_the_second_fix_of_a_file_after_the_first_one_of_the_same_report(write: Write) -> None:
    path = write("decoder_j.py", DECODER)
    old = path.read_text()
    run = fail("decoder_j")
    assert run.diagnosis is not None
    run.cell("%autograd_fix")
    second = run.cell("%autograd_fix 2")
    assert "Fixed decoder_j.py" in second.output and "Fix 1 was taken back." in second.output
    assert path.read_text() == next(iter(run.diagnosis.fixes[1].files.values()))
    assert path.with_suffix(".py.orig").read_text() == old
    run.cell("%autograd_fix --undo")
    assert path.read_text() == old and not path.with_suffix(".py.orig").exists()
    path.write_text(old + "\n# by hand\n")
    assert "it was not written" in run.cell("%autograd_fix").output


@pytest.mark.all_fixes
def test_second_failure_of_the_fixed_file(write: Write) -> None:
    """The lines of functions that only moved are the new ones."""
    path = write("decoder_c.py", DECODER + "\n\ndef late(x):\n    y = x.exp()\n    y += 1\n    return y\n")
    run = fail("decoder_c")
    index = next(i for i, f in enumerate(run.diagnosis.fixes, 1) if "clone()" in f.title)  # type: ignore[union-attr]
    assert run.cell(f"%autograd_fix {index}").error is None
    late = run.cell("from decoder_c import late\nlate(img.requires_grad_()).sum().backward()").diagnosis
    assert late is not None and late.changed is not None
    assert path.read_text().splitlines()[late.changed.line - 1].strip() == late.changed.text == "y += 1"
    assert late.fixes and (run.cell("%autograd_fix --run")).error is None
    assert "y = y + 1" in path.read_text()


def test_flag_in_a_constructor(write: Write) -> None:
    path = write("gate_a.py", """
        import torch
        from torch import nn


        class Gate(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = nn.Conv2d(3, 4, 3, padding=1)
                self.act = nn.ReLU(inplace=True)

            def forward(self, x):
                return self.act(torch.sigmoid(self.conv(x)))
        """)  # fmt: skip
    run = run_cells(
        "import torch\nimport gate_a\nnet = gate_a.Gate()", "net(torch.randn(2, 3, 6, 6)).mean().backward()"
    )
    fix = run.diagnosis.fixes[0]  # type: ignore[union-attr]
    assert [change.text for change in fix.live] == ["net.act.inplace = False"]
    assert run.cell("%autograd_fix --run").error is None
    assert "nn.ReLU()" in path.read_text()


def test_top_level_statement(write: Write) -> None:
    path = write("parts.py", """
        import torch

        kept = object()
        ACT = torch.nn.ReLU(inplace=True)


        def run(x):
            return ACT(torch.sigmoid(x))
        """)  # fmt: skip
    run = run_cells("import torch\nimport parts\nkept = parts.kept\nx = torch.randn(3, requires_grad=True)",
                    "parts.run(x).sum().backward()")  # fmt: skip
    assert run.diagnosis is not None and run.diagnosis.fixes
    assert run.cell("%autograd_fix --run").error is None
    assert "ACT = torch.nn.ReLU()" in path.read_text()
    assert run.cell("assert parts.kept is kept").error is None


def test_package_and_module_of_a_module(write: Write) -> None:
    write("nets/__init__.py", "from .whole import Net")
    write("nets/whole.py", """
        from torch import nn
        from .block import Block


        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.block = Block()

            def forward(self, x):
                return self.block(x).sum()
        """)  # fmt: skip
    block = write("nets/block.py", """
        from torch import nn


        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(3, 3)

            def forward(self, x):
                y = self.linear(x).tanh()
                y *= 2
                return y
        """)  # fmt: skip
    run = run_cells("import torch\nimport nets\nnet = nets.Net()", "net(torch.randn(2, 3)).backward()")
    assert run.diagnosis is not None and run.diagnosis.changed is not None
    assert run.diagnosis.changed.label == os.path.join("nets", "block.py") + ":11"
    assert run.cell("%autograd_fix --run").error is None
    assert "y = y * 2" in block.read_text()


def test_module_that_fails_while_it_is_imported(write: Write) -> None:
    path = write("training_a.py", """
        import torch

        w = torch.randn(3, requires_grad=True)
        y = w.exp()
        y += 1
        y.sum().backward()
        """)  # fmt: skip
    run = run_cells("import torch", "import training_a")
    assert run.diagnosis is not None and run.diagnosis.changed is not None
    assert run.diagnosis.changed.label == "training_a.py:5"
    assert run.cell("%autograd_fix --run").error is None
    assert "y = y + 1" in path.read_text()


def test_script_run_by_a_magic(write: Write) -> None:
    path = write("training_b.py", """
        import sys
        import torch

        w = torch.randn(int(sys.argv[1]), requires_grad=True)
        y = w.exp()
        y += 1
        y.sum().backward()
        """)  # fmt: skip
    run = run_cells("%run training_b.py 3")
    assert run.diagnosis is not None and run.diagnosis.changed is not None
    assert run.diagnosis.changed.label == "training_b.py:6"
    assert run.diagnosis.fixes[0].files and run.diagnosis.fixes[0].gradients == "same"
    run.cell("%autograd_fix --run")
    assert "y = y + 1" in path.read_text()
    before = run.diagnosis.id
    again = run.cell("%run training_b.py 3")
    assert again.diagnosis is not None and again.diagnosis.id == before and "RuntimeError" not in again.output


def test_a_function_edited_since_it_was_imported(write: Write) -> None:
    path = write("decoder_d.py", DECODER)
    run = run_cells(*(cell.format(module="decoder_d") for cell in USE[:2]))
    path.write_text(path.read_text().replace("x += feature16", "x += 2 * feature16"))
    found = run.cell(USE[2]).diagnosis
    assert found is not None and not any(fix.files for fix in found.fixes)
    assert any("decoder_d.py has changed since it was loaded" in note for note in found.notes)


def test_a_file_whose_lines_have_moved_since_it_was_imported(write: Write) -> None:
    path = write("decoder_g.py", DECODER)
    run = run_cells(*(cell.format(module="decoder_g") for cell in USE[:2]))
    path.write_text("# a line more\n" + path.read_text())
    found = run.cell(USE[2]).diagnosis
    assert found is not None and found.changed is not None and found.changed.text.startswith("x += feature16")
    assert found.fixes and found.fixes[0].files and found.notes == ()
    assert run.cell("%autograd_fix --run").error is None
    assert path.read_text().startswith("# a line more\n") and "x = x + feature16" in path.read_text()


def test_file_edited_since_it_was_diagnosed(write: Write) -> None:
    path = write("decoder_e.py", DECODER)
    run = fail("decoder_e")
    path.write_text(path.read_text() + "# more\n")
    refused = run.cell("%autograd_fix")
    assert "has changed since it was diagnosed" in refused.output
    assert "x += feature16" in path.read_text() and not path.with_suffix(".py.orig").exists()
    assert "modified by an inplace operation" in str(run.cell("net(img).sum().backward()").error)


def test_file_outside_of_the_working_directory(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("decoder_f.py", DECODER)
    (path.parent / "here").mkdir()
    monkeypatch.chdir(path.parent / "here")
    run = fail("decoder_f")
    assert run.diagnosis is not None and any("outside the working directory" in note for note in run.diagnosis.notes)
    assert "outside the working directory" in run.cell("%autograd_fix").output
    assert "x += feature16" in path.read_text()


def test_library_is_never_written(write: Write) -> None:
    path = write("site-packages/lib_a.py", DECODER)
    sys.path.insert(0, str(path.parent))
    try:
        run = fail("lib_a")
    finally:
        sys.path.remove(str(path.parent))
    assert run.diagnosis is not None and not any(fix.files for fix in run.diagnosis.fixes)
    assert atomic_write.outside(str(path)) == "belongs to a library"


def test_the_panel_asks_the_kernel_which_writes_the_file_of_its_own_report_alone(write: Write) -> None:
    path = write("decoder_g.py", DECODER)
    run, before = fail("decoder_g"), path.read_text()
    assert run.diagnosis is not None
    assert "another session" in run.cell("%autograd_fix --live --diagnosis forged").output
    assert path.read_text() == before
    run.cell(f"%autograd_fix 1 --live --diagnosis {run.diagnosis.id}")
    assert "x += feature16" not in path.read_text()
    run.cell(f"%autograd_fix 1 --undo --diagnosis {run.diagnosis.id}")
    assert path.read_text() == before


def test_undo_leaves_a_file_that_has_changed_since(write: Write) -> None:
    path = write("decoder_h.py", DECODER)
    run = fail("decoder_h")
    run.cell("%autograd_fix")
    path.write_text(path.read_text() + "# mine\n")
    undone = run.cell("%autograd_fix --undo")
    assert "has changed since" in undone.output and path.read_text().endswith("# mine\n")


@pytest.mark.parametrize(
    ("head", "encoding", "newline"),
    [
        pytest.param("", "utf-8", "\r\n", id="windows line ends"),
        pytest.param("# -*- coding: latin-1 -*-\n# \xe4\n", "latin-1", "\n", id="latin-1"),
        pytest.param("\ufeff# \u65e5\u672c\n", "utf-8", "\n", id="byte order mark"),
    ],
)
def test_encoding_and_line_ends_are_kept(write: Write, tmp_path: Path, head: str, encoding: str, newline: str) -> None:
    name = f"decoder_{encoding.replace('-', '')}_{len(newline)}_{len(head)}"
    path = tmp_path / f"{name}.py"
    old = (head + DECODER.lstrip("\n")).replace("\n", newline).encode(encoding)
    path.write_bytes(old)
    run = fail(name)
    assert run.diagnosis is not None and run.diagnosis.changed is not None
    assert run.diagnosis.changed.text == "x += feature16  # the skip"
    assert run.cell("%autograd_fix --run").error is None
    assert path.read_bytes() == old.replace(b"x += feature16", b"x = x + feature16")


def test_no_trace_of_a_failed_write(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("plain.py", "a = 1\n")

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(atomic_write.NotWrittenError, match="No space left"):
        atomic_write.write_source(str(path), "a = 1\n", "a = 2\n")
    assert [p.name for p in path.parent.iterdir()] == ["plain.py"] and path.read_text() == "a = 1\n"


def test_a_backup_is_kept_once(write: Write) -> None:
    path = write("plain.py", "a = 1\n")
    atomic_write.write_source(str(path), "a = 1\n", "a = 2\n")
    atomic_write.write_source(str(path), "a = 2\n", "a = 3\n")
    assert path.read_text() == "a = 3\n" and path.with_name("plain.py.orig").read_text() == "a = 1\n"


def test_a_backup_of_somebody_elses_is_not_taken_for_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "plain.py"
    path.write_text("a = 1\n")
    path.with_name("plain.py.orig").write_text("of a merge tool\n")
    undo = atomic_write.write_source(str(path), "a = 1\n", "a = 2\n")
    kept = tmp_path / "plain.py.orig.1"
    assert atomic_write.backup_of(str(path)) == str(kept) and kept.read_text() == "a = 1\n"
    undo()
    assert path.read_text() == "a = 1\n" and not kept.exists()
    assert path.with_name("plain.py.orig").read_text() == "of a merge tool\n"


def test_form_feeds_are_left_to_python(write: Write) -> None:
    """What a line is, is not certain there, so that nothing of it is rewritten."""
    write("paged.py", DECODER.replace("class Decoder", "\f\nclass Decoder"))
    run = fail("paged")
    assert run.diagnosis is not None and run.diagnosis.changed is not None
    assert run.diagnosis.changed.text == "x += feature16  # the skip" and not run.diagnosis.fixes
    assert files.read_source("paged.py").text.count("\f") == 1


def test_what_only_an_import_leads_to(write: Write) -> None:
    """A function of a library's making, from a module that no name of the session stands for."""
    path = write("deco.py", """
        import functools
        import torch


        def logged(function):
            @functools.wraps(function)
            def wrapper(*args):
                return function(*args)

            return wrapper


        @logged
        def step(x):
            y = torch.sigmoid(x)
            y.mul_(2)
            return y


        ready = functools.partial(step)
        """)  # fmt: skip
    run = run_cells("import torch\nfrom deco import ready", "ready(torch.ones(2, requires_grad=True)).sum().backward()")
    assert run.diagnosis is not None and run.diagnosis.fixes
    assert run.cell("%autograd_fix --run").error is None
    assert "y = y.mul(2)" in path.read_text()
