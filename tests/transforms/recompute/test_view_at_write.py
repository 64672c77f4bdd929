from __future__ import annotations

import pytest

from ...cells import run_cells
from ..trying import fix_by, proposals, titles

RULE = "view_at_write"
FAMILY = "no_grad_view"


@pytest.mark.parametrize(
    ("cells", "write"),
    [
        pytest.param(("rows = f(table)\nrows[0] += 1",), "rows[0] += 1", id="an item of what a function gives"),
        pytest.param(("rows = [a, b]\nfor row in rows:\n    row += 1",), "row += 1", id="tensors, no views"),
        pytest.param(("rows = [f(i) for i in range(3)]\nrows[0] += 1",), "rows[0] += 1", id="what a function makes"),
        pytest.param(
            ("def make(n):\n    t = zeros(n)\n    return [t[i] for i in range(n)]", "rows = make(3)\nrows[0] += 1"),
            "rows[0] += 1", id="a base that has no name where the view is written",
        ),
        pytest.param(("t = zeros(9)\nrows = [t[i] for i in range(9) if i % 2]\nrows[0] += 1",), "rows[0] += 1", id="items that were passed over"),
        pytest.param(("t = zeros(9)\nrows = [t[i] for i in range(1, 9, 2)]\nrows[0] += 1",), "rows[0] += 1", id="a count with a beginning"),
        pytest.param(("t = zeros(9)\nrows = []\nfor i in range(9):\n    if i != 2:\n        rows.append(t[i])\nrows[0] += 1",), "rows[0] += 1", id="items put under a test"),
        pytest.param(("t = zeros(9)\nrows = [t[4]]\nfor i in range(9):\n    rows.append(t[i])\nrows[0] += 1",), "rows[0] += 1", id="a list that was begun with another"),
        pytest.param(("t = zeros(9)\nrows = [t[i] for i in range(9)]\nrows.reverse()\nrows[0] += 1",), "rows[0] += 1", id="a list that was turned round"),
        pytest.param(("t = zeros(9)\nrows = [t[i] for i in range(9)]\nshuffle(rows)", "rows[0] += 1"), "rows[0] += 1", id="a list that was shuffled"),
        pytest.param(("t = zeros(9)\nrows = [t[i] for i in range(9)]\nrows[0] = z", "rows[0] += 1"), "rows[0] += 1", id="a list with another item by then"),
        pytest.param(("t = zeros(9)\nrows = [t[i] for i in range(9)]\nt = u", "rows[0] += 1"), "rows[0] += 1", id="a base whose name is another's by then"),
        pytest.param(("t = zeros(9)\ns = 2\nrows = [t[i + s] for i in range(3)]\ns = 3", "rows[0] += 1"), "rows[0] += 1", id="a number that is another one by then"),
        pytest.param(("t, off, rows = zeros(9), 0, []\nfor n in range(3):\n    rows.append(t[off:])\n    off += n", "rows[0] += 1"), "rows[0] += 1", id="an offset that runs on"),
        pytest.param(("t, order = zeros(9), [2, 1]\nrows = [t[k] for k in order]\norder.sort()", "rows[0] += 1"), "rows[0] += 1", id="a list of numbers that was sorted"),
        pytest.param(("t = zeros(9)\nrows = []\nwhile len(rows) < 3:\n    rows.append(t[len(rows)])", "rows[0] += 1"), "rows[0] += 1", id="a while loop"),
        pytest.param(("t = zeros(9)\nrows = [t[i:i + 2] for i in range(8)]", "rows[-1] += 1"), "rows[-1] += 1", id="an item counted from the end"),
        pytest.param(("a, b = zeros(3), zeros(3)\nfor _ in range(3):\n    a, b = b, a\n    a += 1",), "a += 1", id="two names that are exchanged"),
        pytest.param(("t = zeros(9)\nrows = {}\nfor n, s in spans.items():\n    rows[n.upper()] = t[s]", "rows[0] += 1"), "rows[0] += 1", id="a key that is computed"),
        pytest.param(("t = zeros(9)\nrows = {n: t[k] for k, n in enumerate(made())}", "rows[n] += 1"), "rows[n] += 1", id="a count beside a key that a call makes"),
        pytest.param(("t = zeros(9)\nrows = {n: t[k] for k, n in enumerate(names, 1)}", "rows[n] += 1"), "rows[n] += 1", id="a count from one beside the key"),
        pytest.param(("t = zeros(9)\nrows = {}\nfor k, n in enumerate(names):\n    rows[n] = t[k]", "for k, n in enumerate(sorted(names)):\n    rows[n] += 1"), "rows[n] += 1", id="a count beside the key"),
    ],
)  # fmt: skip
def test_proposes_nothing(cells: tuple[str, ...], write: str) -> None:
    assert titles(RULE, *cells, write=write, family=FAMILY, held=(write.partition(" ")[0],)) == []


def test_a_leaf_is_no_view() -> None:
    cell = "table = zeros(3, 2)\nrows = [table[i] for i in range(3)]\nrows[0] += 1"
    assert titles(RULE, cell, write="rows[0] += 1", family="leaf", held=("rows[0]",)) == []
    assert titles(RULE, cell, write="rows[0] += 1", family="leaf", held=("rows[0]",), late=True) == ["table[0] += 1"]


@pytest.mark.parametrize(
    ("cells", "write", "expected"),
    [
        pytest.param(
            ("table = zeros(6, 6)\nwith torch.no_grad():\n    rows = [table[i] for i in range(3)]", "for i, row in enumerate(rows):\n    row.copy_(d[i])\n"),
            "row.copy_(d[i])", "for i, row in enumerate(rows):\n    row = table[i]\n    row.copy_(d[i])\n", id="a comprehension of another cell",
        ),
        pytest.param(
            ("spans, table = [0, 2], zeros(6, 6)\nrows = [table[s] for s in spans]", "for row in rows:\n    row += 1\n"),
            "row += 1", "for i in range(len(rows)):\n    row = table[spans[i]]\n    row += 1\n", id="a list beside it",
        ),
        pytest.param(
            ("table = zeros(6, 6)\nrows = [table[r] for r in range(3)]", "for n, row in enumerate(rows, 1):\n    row += n\n"),
            "row += n", "for i, (n, row) in enumerate(enumerate(rows, 1)):\n    row = table[i]\n    row += n\n", id="a count that begins with one",
        ),
        pytest.param(
            ("board = zeros(6, 6)\ncells = []\nfor r in range(2):\n    for c in range(3):\n        cells.append(board[r, c])\n", "cells[k] += 1\n"),
            "cells[k] += 1", "board[(k // 3), (k % 3)] += 1\n", id="two loops, one in the other",
        ),
        pytest.param(
            ("spans, flat = {'a': 0}, zeros(6, 6)\nparts = {n: flat[s] for n, s in spans.items()}", "for name, part in parts.items():\n    part += d[name]\n"),
            "part += d[name]", "for name, part in parts.items():\n    part = flat[spans[name]]\n    part += d[name]\n", id="a dict, by its keys",
        ),
        pytest.param(
            ("heads, sheet = {'a': 0, 'b': 1}, zeros(2, 6)\nrow = {n: sheet[i] for i, n in enumerate(heads)}", "row[k] += 1\n"),
            "row[k] += 1", "sheet[list(heads).index(k)] += 1\n", id="a dict, by the place of its key among those that were counted",
        ),
        pytest.param(
            ("image = zeros(6, 6)\ntiles = {}\nfor i in range(2):\n    for j in range(2):\n        tiles[i, j] = image[i * 4:, j * 4:]", "tiles[0, k + 1] += 1\n"),
            "tiles[0, k + 1] += 1", "image[0 * 4:, (k + 1) * 4:] += 1\n", id="a key of two",
        ),
        pytest.param(
            ("def fill(rows):\n    for i, row in enumerate(rows):\n        row += i\n", "table = zeros(3, 3)\nrows = [table[i] for i in range(3)]", "fill(rows)"),
            "row += i", "def fill(rows):\n    for i, row in enumerate(rows):\n        row = table[i]\n        row += i\n", id="a list that is handed to a function",
        ),
    ],
)  # fmt: skip
def test_the_view_is_made_where_it_is_written(cells: tuple[str, ...], write: str, expected: str) -> None:
    callers = ("fill(rows)",) if "fill(rows)" in cells else ()
    held = (write.partition("]")[0] + "]",) if "[" in write.partition(" ")[0] else ()  # the item is a tensor
    (fix,) = proposals(RULE, *cells, write=write, callers=callers, family=FAMILY, held=held)
    assert list(fix.texts.values()) == [expected]


CHAIN = """
class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.logits = nn.Parameter(torch.arange(12.).view(3, 2, 2))
        self.full, self.blocks = torch.zeros(6, 6), {}
        GRADIENTS:
            for b in range(3):
                s = slice(2 * b, 2 * b + 2)
                self.blocks[b] = self.full[s, s]

    def forward(self):
        for b in range(3):
            block = self.blocks[b]
            block += torch.softmax(self.logits[b], -1)
        return self.full
"""


def test_a_view_is_not_made_of_another_place_than_it_was() -> None:
    start = "import torch\nw, names = torch.ones(3, requires_grad=True), ['a', 'b', 'c']"
    made = """
        sheet = torch.zeros(3, 3)
        rows = {n: sheet[i] for i, n in enumerate(names)}
        first = names.pop(0)
        for n in names:
            rows[n].copy_(w * (1 + len(names)))
        sheet.sum().backward()
        """
    run = run_cells(start, made)
    assert run.diagnosis is not None and RULE not in [fix.rule for fix in run.diagnosis.fixes]


@pytest.mark.parametrize("gradients", ["with torch.no_grad()", "if True"])
def test_what_a_constructor_kept(gradients: str) -> None:
    """In grad mode torch speaks of a leaf, once another look at the base has been written."""
    start = "import torch\nfrom torch import nn"
    fix = fix_by(
        RULE, start, CHAIN.replace("GRADIENTS", gradients), "chain = Chain()\nchain().prod(-1).sum().backward()"
    )
    assert (
        fix.gradients == "same" and fix.title == "block = self.full[slice(2 * b, 2 * b + 2), slice(2 * b, 2 * b + 2)]"
    )
