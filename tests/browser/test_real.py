"""The whole way with the package itself: torch fails, a person clicks, the notebook and the kernel are right."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[2]

LOAD = "%load_ext inplace_magic"
SETUP = "import torch\nw = torch.ones(3, requires_grad=True)"
FAILS = "x = w.exp()\nx += 1  # shift\nx.sum().backward()\nprint('gradient', w.grad)"
FIXED = FAILS.replace("x += 1", "x = x + 1")

MODEL = dedent("""\
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.score16 = nn.Conv2d(3, 4, 1)
            self.main = nn.Conv2d(3, 4, 1)

        def forward(self, img):
            feature16 = self.score16(img)
            x = F.relu(self.main(img))
            x += feature16
            return x""")
NET = "net = Decoder()\nimg = torch.randn(2, 3, 8, 8)\nbefore = [p.clone() for p in net.parameters()]"
TRAIN = "loss = net(img).pow(2).mean()\nloss.backward()\nprint('trained')"
KEPT = "print(all(torch.equal(a, b) for a, b in zip(before, net.parameters())), net.main.weight.grad is not None)"


def test_type_run_click_and_take_back(page):
    page.write("typed.ipynb", LOAD, SETUP, "")
    page.open("typed.ipynb")
    page.run(0)
    page.run(1)
    page.type(2, FAILS)
    page.run(2)
    page.expect_text(page.panel(2), "In-place change broke the backward pass")
    page.expect_text(page.panel(2), "verified, same gradients")
    assert "modified by an inplace operation" in page.output(2)
    page.picture("real", page.panel(2))

    page.press(2, "Accept and run")
    page.expect_text(page.bar(2), "Accepted: In[4] has the new text. In[4] ran again, without an error.")
    page.expect_in_view(page.bar(2))  # the long traceback above it is gone
    assert page.source(2) == FIXED
    assert "gradient tensor" in page.output(2)
    assert "modified by an inplace operation" not in page.output(2)
    assert page.panel(2).count() == 0
    page.picture("real-accepted")

    page.key(2, "Control+z")
    assert page.source(2) == FAILS
    page.key(2, "Control+Shift+z")
    assert page.source(2) == FIXED


def test_a_fix_of_another_cell_keeps_the_model_and_can_be_undone(page):
    page.write("model.ipynb", LOAD, MODEL, NET, TRAIN, KEPT)
    page.open("model.ipynb")
    page.run_all(4)
    page.expect_text(page.panel(3), "In[2]:14")
    page.picture("model", page.panel(3))

    page.press(3, "Accept and run")
    page.expect_text(page.bar(3), "Accepted: In[2] has the new text.")
    page.expect_text(page.bar(3), "without an error")
    assert page.source(1) == MODEL.replace("x += feature16", "x = x + feature16")
    assert page.source(3) == TRAIN
    assert page.prompt(1) == "[2]:", "the model's cell has not run again"
    assert "trained" in page.output(3)
    page.run(4)
    assert "True True" in page.output(4), "the same weights, with gradients"
    page.picture("model-accepted")

    page.press(3, "Undo")
    page.expect_text(page.bar(3), "Undone")
    assert page.source(1) == MODEL
    page.expect_text(page.panel(3), "In[2]:14")
    page.run(3)
    page.expect_text(page.panel(3), "In[2]:14")


def test_a_fix_of_a_file_is_written_and_taken_back(lab):
    file = lab.folder / "decoder.py"
    file.write_text(MODEL + "\n")
    lab.write("file.ipynb", LOAD, "import torch\nfrom decoder import Decoder", NET, TRAIN, KEPT)
    lab.open("file.ipynb")
    lab.run_all(4)
    lab.expect_text(lab.panel(3), "decoder.py:14")
    lab.expect_text(lab.panel(3), "x = x + feature16")
    assert str(lab.folder) not in lab.panel(3).inner_text(), "the path is the one that a person knows"
    shown = lab.panel(3).locator(".ipm-row:visible").all_inner_texts()
    assert shown and shown[-1].strip() == "return x", "a file's last line end is no empty line"
    lab.picture("file", lab.panel(3))

    lab.press(3, "Accept and run")
    lab.expect_text(lab.bar(3), "decoder.py")
    lab.expect_text(lab.bar(3), "without an error")
    assert file.read_text() == MODEL.replace("x += feature16", "x = x + feature16") + "\n"
    assert (lab.folder / "decoder.py.orig").read_text() == MODEL + "\n"
    assert lab.source(3) == TRAIN
    lab.run(4)
    assert "True True" in lab.output(4), "the same weights, with gradients"
    lab.picture("file-accepted", lab.bar(3))

    lab.press(3, "Undo")
    lab.expect_text(lab.bar(3), "Undone")
    assert file.read_text() == MODEL + "\n" and not (lab.folder / "decoder.py.orig").exists()

    edited = MODEL + "\n# by hand\n"
    file.write_text(edited)
    lab.press(3, "Accept and run")
    lab.expect_text(
        lab.panel(3), "decoder.py has changed since it was diagnosed; it was not written. Nothing was changed."
    )
    assert file.read_text() == edited and "Accepted" not in lab.cell(3).inner_text()
    file.write_text(MODEL + "\n")
    lab.press(3, "Accept")
    lab.expect_text(lab.bar(3), "Accepted: decoder.py has the new text.")
    file.write_text(edited)
    lab.press(3, "Undo")
    lab.expect_text(lab.bar(3), "Not undone: decoder.py has changed since")
    assert file.read_text() == edited and "as it was" not in lab.bar(3).inner_text()
    file.write_text(MODEL + "\n")

    lab.press(3, "Accept")
    lab.expect_text(lab.bar(3), "Accepted: decoder.py has the new text.")
    lab.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    lab.expect_text(lab.bar(3), "decoder.py stays as it is now: only that kernel could bring its old text back.")
    assert lab.bar(3).get_by_role("button", name="Undo").count() == 0
    assert file.read_text() != MODEL + "\n"


@pytest.mark.broad
def test_the_demo_with_the_button(lab):
    import nbformat

    book = nbformat.read(ROOT / "demo.ipynb", as_version=4)
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.update(outputs=[], execution_count=None)
    nbformat.write(book, lab.folder / "demo.ipynb")
    names = [cell.id for cell in book.cells if cell.cell_type == "code"]
    lab.open("demo.ipynb")
    for at, name in enumerate(names):
        if name.endswith("-fix"):
            continue
        lab.run(at)
        if name.endswith("-fails"):
            lab.picture(f"demo-{name}", lab.panel(at))
            lab.press(at, "Accept and run")
            lab.expect_text(lab.bar(at), "ran again, without an error")
            assert "RuntimeError" not in lab.output(at)
            lab.picture(f"demo-{name}-accepted", lab.bar(at))
    assert "x = x + feature16" in lab.source(names.index("model-cell"))
    assert "the same weights: True" in lab.output(names.index("model-fails"))
    assert "gradient [2.0, 4.0, 6.0]" in lab.output(names.index("silent-fails"))
