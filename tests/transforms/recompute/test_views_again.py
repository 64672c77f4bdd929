"""Views whose base was written afterwards are made again: the line to blame, and the fix."""

from __future__ import annotations

import pytest

from ...cells import run_cells
from ..trying import clean, fix_by, proposals, rewritten

RULE = "views_again"
START = """
    import torch
    torch.manual_seed(0)
    w = torch.ones(2, 4, requires_grad=True)
    """
UNUSED = """
    x = w * 2
    a, b = x.chunk(2, 1)
    x[:, :2] *= 3
    (a.exp() + b).sum().backward()
    """
USED = """
    x = w * 2
    a, b = torch.split(x, 2, 1)
    scale = b.mean()
    x.mul_(3)
    (a.exp() + b * scale).sum().backward()
    """
IN_A_BLOCK = """
    x = w * 2
    rows = x.unbind(0)
    for i in range(2):
        half = x[:, i]
        half.mul_(3)
    torch.stack([row.exp() for row in rows]).sum().backward()
    """
NO_GRAD = """
    x = w * 2
    with torch.no_grad():
        first = x[0]
    x.mul_(3)
    first.exp().sum().backward()
    """


def test_views_that_are_used_behind_a_helpers_write_were_meant_to_see_it() -> None:
    helper = "def limited(image):\n    return image.clamp_(0, 1)\n"
    cell = "x = w * 2\na, b = x.chunk(2, 1)\nx = limited(x)\n(a * b + x.sum()).sum().backward()"
    fix = run_cells(clean(START) + helper, cell).diagnosis.fixes[0]  # type: ignore[union-attr]
    assert (fix.rule, fix.gradients) == (RULE, "same")


@pytest.mark.parametrize(
    ("cell", "line"),
    [
        pytest.param(UNUSED, 3, id="chunk"),
        pytest.param(USED, 4, id="split"),
        pytest.param(IN_A_BLOCK, 5, id="unbind, written through another view"),
        pytest.param(NO_GRAD, 4, id="a view made without grad mode"),
    ],
)
def test_the_write_is_to_blame_and_not_the_line_that_reads(cell: str, line: int) -> None:
    found = run_cells(START, cell).diagnosis
    assert found is not None and found.changed is not None and found.needed is not None
    assert found.changed.line == line
    assert found.needed.line == len(clean(cell).splitlines())
    assert "changed the base of a view" in found.sentence


@pytest.mark.parametrize(
    ("cell", "changes"),
    [
        pytest.param(
            UNUSED, [("a, b = x.chunk(2, 1)\n", ""), ("*= 3\n", "*= 3\na, b = x.chunk(2, 1)\n")], id="moved behind the write"
        ),
        pytest.param(USED, [("x.mul_(3)\n", "x.mul_(3)\na, b = torch.split(x, 2, 1)\n")], id="made twice where used before"),
        pytest.param(
            IN_A_BLOCK,
            [("rows = x.unbind(0)\n", ""), ("half.mul_(3)\n", "half.mul_(3)\nrows = x.unbind(0)\n")],
            id="behind the loop that writes",
        ),
    ],
)  # fmt: skip
def test_is_proved(cell: str, changes: list[tuple[str, str]]) -> None:
    fix = fix_by(RULE, START, cell)
    assert fix.cells == {2: rewritten(cell, *changes)}
    assert fix.gradients == "same"


def test_a_clone_that_loses_the_write_is_not_offered() -> None:
    found = run_cells(START, UNUSED).diagnosis
    assert found is not None
    assert "clone_before_write" not in [fix.rule for fix in found.fixes]


def test_a_stale_view_that_nobody_reads_is_no_obstacle() -> None:
    """Embedding clears a row through a view that it makes without grad mode, once its weight has been written."""
    cell = """
        emb = torch.nn.Embedding(4, 3, padding_idx=0)
        x = emb(torch.tensor([1, 2])).exp()
        x += 1
        x.sum().backward()
        """
    found = run_cells(START, cell).diagnosis
    assert found is not None and found.family == "modified"
    assert found.changed is not None and found.changed.line == 3
    assert found.fixes


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        pytest.param(
            "    top = h[:2]  # first\n    n = h.norm()\n",
            "with torch.no_grad():\n    n = h.norm()\ntop = h[:2]  # first\n",
            id="behind the block that goes on without it",
        ),
        pytest.param("    top = h[:2]\n", "top = h[:2]\n", id="in place of the block that was there for it"),
        pytest.param("    flat = h; top = flat[:2]\n", "flat = h; top = flat[:2]\n", id="one of two on a line"),
        pytest.param(
            "    top = h[:2]\n    print(top.mean())\n",
            "top = h[:2]\nwith torch.no_grad():\n    print(top.mean())\n",
            id="ahead of a block that reads it",
        ),
        pytest.param(
            "    n = 1\n    top = h[:n]\n    print(top.mean())\n",
            "with torch.no_grad():\n    n = 1\n    print(top.mean())\ntop = h[:n]\n",
            id="never ahead of what it is made from",
        ),
    ],
)
def test_a_view_made_without_gradients_is_made_outside(block: str, expected: str) -> None:
    cell = f"with torch.no_grad():\n{block}top.mul_(3)\n"
    made = next(part for part in ("top = flat[:2]", "top = h[:n]", "top = h[:2]") if part in cell)
    found = proposals(RULE, cell, write="top.mul_(3)", save=made, family="no_grad_view")
    assert found[0].texts[1] == f"{expected}top.mul_(3)\n"


def test_a_view_that_a_cell_before_made_without_gradients_is_made_outside_there() -> None:
    made = "with torch.no_grad():\n    top = h[:2]\n"
    found = proposals(RULE, made, "top.mul_(3)\n", write="top.mul_(3)", save="top = h[:2]", family="no_grad_view")
    assert found[0].texts == {1: "top = h[:2]\n"}


def test_where_a_view_was_made_is_not_guessed_by_its_name() -> None:
    cell = "def f(top):\n    top.mul_(3)\n"
    before = "with torch.no_grad():\n    top = h[:2]\n    print(top)\n"
    assert proposals(RULE, before, cell, write="top.mul_(3)", family="no_grad_view") == []


@pytest.mark.parametrize(
    "cells",
    [
        pytest.param(
            (
                "with torch.inference_mode():\n    rows = {n: h[i] for i, n in enumerate('ab')}\n    print(len(rows))",
                "row, by = rows['a'], 2; row += by",
            ),
            id="views in a dict, written under another name",
        ),
        pytest.param(
            (
                "with torch.no_grad():\n    rows = [h[0], h[1]]\n    print(len(rows))",
                "for row in rows:\n    row.add_(2)",
            ),
            id="views in a list that a loop goes through",
        ),
        pytest.param(
            (
                "class Parts:\n    def split(self, h):\n        self.rows = {}\n        with torch.no_grad():\n"
                "            for i in range(2):\n                self.rows[i] = h[i]\n"
                "    def shift(self):\n        self.rows[0].add_(2)",
                "parts = Parts()\nparts.split(h)",
                "parts.shift()",
            ),
            id="views that an object keeps as items",
        ),
        pytest.param(
            (
                "def top(h):\n    with torch.no_grad():\n        row = h[0]\n        size = row.norm()\n    return row, size",
                "first, _ = top(h)\nfirst.mul_(2)",
            ),
            id="a view that a function returns",
        ),
        pytest.param(
            ("def top(h):\n    with torch.inference_mode():\n        return h[0]", "first = top(h)\nfirst.mul_(2)"),
            id="a view that a function returns from within the block",
        ),
        pytest.param(
            (
                "def rows(h):\n    for i in range(2):\n        with torch.no_grad():\n            row = h[i]\n"
                "        yield row",
                "for row in rows(h):\n    row.mul_(2)",
            ),
            id="views that a generator yields",
        ),
        pytest.param(
            (
                "plain = torch.zeros(2, 3)\nwith torch.no_grad():\n    size = 2\n    rows = plain[:size]",
                "rows.add_(h)",
                "plain.sum()",
            ),
            id="views of what had no history by then",
        ),
        pytest.param(
            (
                "def padder(by):\n    def pad(rows):\n        k = 0\n        while k < len(rows):\n"
                "            rows[k].add_(by)\n            k += 1\n    return pad",
                "with torch.inference_mode():\n    rows = [h[i] for i in range(2)]\npad = padder(2)",
                "pad(rows)",
            ),
            id="views that a closure is handed",
        ),
    ],
)
def test_so_are_views_that_something_keeps(cells: tuple[str, ...]) -> None:
    fix = fix_by(RULE, "import torch\nx = torch.ones(2, 3, requires_grad=True)\nh = x * 2", *cells)
    assert fix.title.endswith("outside of the block")


LOOP = "def shares(doses):\n    for i, row in enumerate(doses):\n        doses[{index}] = row / row.sum()\n    return doses\nshares(2 * w).pow(2).sum().backward()"
ROWS = "import torch\ntorch.manual_seed(0)\nw = torch.rand(3, 4, requires_grad=True)"


def test_a_loop_that_writes_what_it_goes_through_goes_through_a_copy() -> None:
    cell = LOOP.format(index="i")
    fix = fix_by("clone_alias", ROWS, cell)
    assert fix.cells == {2: cell.replace("enumerate(doses)", "enumerate(doses.clone())")} and fix.gradients == "same"


def test_what_is_written_ahead_of_its_turn_is_meant_to_be_read() -> None:
    run = run_cells(ROWS, LOOP.format(index="i - 1"))
    assert run.diagnosis is not None and all("doses.clone())" not in fix.diff for fix in run.diagnosis.fixes)
